//go:build unix

package fastudp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const msgTrunc = unix.MSG_TRUNC

func errnoName(e syscall.Errno) string {
	if n := unix.ErrnoName(e); n != "" {
		return n
	}
	return "other"
}
