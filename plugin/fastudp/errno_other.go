//go:build !unix

package fastudp

import (
	"strconv"
	"syscall"
)

const msgTrunc = 0

func errnoName(e syscall.Errno) string { return strconv.Itoa(int(e)) }
