//go:build !linux

package main

import (
	"errors"
	"net"
	"os"
)

func pin() (server []int, restore func(), err error) { return nil, func() {}, nil }

// reloadSignal is here for the compiler.
var reloadSignal = os.Interrupt

func runDelay(int) int64 { return 0 }

func rawSocket(string) (net.PacketConn, error) { return nil, errors.ErrUnsupported }
