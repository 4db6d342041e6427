package fastudp

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// severalSockets says that the system spreads datagrams over the sockets of an SO_REUSEPORT group.
const severalSockets = true

func setReusePort(fd uintptr) error {
	return os.NewSyscallError("setsockopt SO_REUSEPORT", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
}

func (k bufferKind) limit() string {
	return [...]string{"sysctl net.core.rmem_max", "sysctl net.core.wmem_max"}[k]
}

// setBuffer tries beyond the limit first, which takes CAP_NET_ADMIN, socket(7).
func setBuffer(c *net.UDPConn, k bufferKind, size int) error {
	force := [...]int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE}[k]
	plain := [...]int{unix.SO_RCVBUF, unix.SO_SNDBUF}[k]
	return control(c, func(fd int) error {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) == nil {
			return nil
		}
		return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size))
	})
}

// bufferSize is what the kernel granted. It doubles the size for its own bookkeeping and reports
// the doubled one, socket(7).
func bufferSize(c *net.UDPConn, k bufferKind) (size int, ok bool) {
	opt := [...]int{unix.SO_RCVBUF, unix.SO_SNDBUF}[k]
	err := control(c, func(fd int) (err error) {
		size, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, opt)
		return err
	})
	return size / 2, err == nil
}

// setPktinfo asks for the address that each datagram was sent to. An IPv6 socket that takes IPv4 too
// tells both in IPV6_PKTINFO.
func setPktinfo(c *net.UDPConn) error {
	return control(c, func(fd int) error {
		family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil {
			return os.NewSyscallError("getsockopt", err)
		}
		if family == unix.AF_INET6 {
			return os.NewSyscallError("setsockopt IPV6_RECVPKTINFO", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1))
		}
		return os.NewSyscallError("setsockopt IP_PKTINFO", unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1))
	})
}

// kernelDrops is how many datagrams the kernel dropped because the socket's receive queue was full,
// and how many bytes of the queue are in use.
func kernelQueue(c *net.UDPConn) (drops uint64, bytes uint64, ok bool) {
	var info [9]uint32 // SK_MEMINFO_VARS
	err := control(c, func(fd int) error { return getMeminfo(fd, &info) })
	return uint64(info[8]), uint64(info[0]), err == nil
}

// broadcast says whether ip is a broadcast address of this host: the kernel takes it as a destination
// only from a socket that says that it may, ip(7).
func broadcast(ip net.IP) bool {
	ip = ip.To4()
	if ip == nil {
		return false
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true // to be asked for the address does no harm
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrInet4{Port: 53, Addr: [4]byte(ip)}) == unix.EACCES
}

// cookie is the kernel's number of the socket, the same for all descriptors of it; 0 if there is none.
func cookie(c *net.UDPConn) (n uint64) {
	control(c, func(fd int) (err error) {
		n, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
		return err
	})
	return n
}

func control(c *net.UDPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}
