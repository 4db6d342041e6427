package main

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const echoBatch = 64

type mmsghdr struct {
	unix.Msghdr
	n uint32
	_ [4]byte
}

// echo answers each datagram with itself, QR set: what batched system calls cost in Go alone. The
// calls block, so the scheduler has no part in it.
func echo(addr string) error {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			const size = 4 << 20
			if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size)
			}
		})
	}}
	p, err := lc.ListenPacket(context.Background(), "udp4", addr)
	if err != nil {
		return err
	}
	f, err := p.(*net.UDPConn).File() // blocking
	if err != nil {
		return err
	}
	fd := f.Fd()
	var (
		data [echoBatch][4096]byte
		peer [echoBatch]unix.RawSockaddrInet4
		iov  [echoBatch]unix.Iovec
		msg  [echoBatch]mmsghdr
	)
	for {
		for i := range msg {
			iov[i].Base = &data[i][0]
			iov[i].SetLen(len(data[i]))
			msg[i].Msghdr = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&peer[i])), Namelen: unix.SizeofSockaddrInet4, Iov: &iov[i]}
			msg[i].SetIovlen(1)
		}
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&msg[0])), echoBatch, unix.MSG_WAITFORONE, 0, 0)
		if errno != 0 && errno != unix.EINTR {
			return fmt.Errorf("recvmmsg: %w", errno)
		} else if errno != 0 {
			continue
		}
		for i := range msg[:n] {
			data[i][2] |= 0x80
			iov[i].SetLen(int(msg[i].n))
		}
		for sent := uintptr(0); sent < n; {
			k, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&msg[sent])), n-sent, 0, 0, 0)
			if errno != 0 {
				k = 1 // skip the one that fails
			}
			sent += k
		}
	}
}
