package load

import (
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// setReceiveBuffer makes room for the answers, beyond the system's limit if we may.
func setReceiveBuffer(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	})
	if err != nil {
		c.SetReadBuffer(receiveBuffer)
	}
}

// overrun is how many datagrams the kernel dropped because c's receive queue was full, see
// SO_MEMINFO in socket(7).
func overrun(c *net.UDPConn) uint64 {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	raw.Control(func(fd uintptr) {
		unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	})
	return uint64(info[8]) // SK_MEMINFO_DROPS
}
