package fastudp

import (
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// newIO is the best way to do the I/O of a socket on this system.
func newIO(c *net.UDPConn, pktinfo bool, o Options, packets []packet, count *counters) (packetIO, error) {
	if err := probeMmsg(c); err != nil {
		warnSingle.Do(func() {
			log.Warningf("Serving one datagram for a system call: %v (does a seccomp profile forbid it?)", err)
		})
		return newSingleIO(c, pktinfo, count), nil
	}
	m, err := newMmsgIO(c, pktinfo, packets, o.Batch, count)
	if err != nil {
		return nil, err
	}
	return m, nil
}

var warnSingle sync.Once

// probeMmsg asks for no messages at all, which a system that has the calls grants.
func probeMmsg(c *net.UDPConn) error {
	return control(c, func(fd int) error {
		for name, call := range map[string]uintptr{"recvmmsg": unix.SYS_RECVMMSG, "sendmmsg": unix.SYS_SENDMMSG} {
			switch _, _, errno := unix.RawSyscall6(call, uintptr(fd), 0, 0, unix.MSG_DONTWAIT, 0, 0); errno {
			case unix.ENOSYS, unix.EPERM, unix.EACCES:
				return os.NewSyscallError(name, errno)
			}
		}
		return nil
	})
}
