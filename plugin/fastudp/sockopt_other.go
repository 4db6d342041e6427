//go:build !linux

package fastudp

import (
	"net"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// severalSockets: elsewhere than on Linux SO_REUSEPORT either is missing or gives all datagrams to
// one of the sockets, so one is all that helps.
const severalSockets = false

func setReusePort(uintptr) error { return nil }

func (bufferKind) limit() string { return "its limit for socket buffers" }

func setBuffer(c *net.UDPConn, k bufferKind, size int) error {
	// The systems refuse instead of capping: try less until one is granted.
	var err error
	for ; size >= MinBuffer; size /= 2 {
		if k == readBuffer {
			err = c.SetReadBuffer(size)
		} else {
			err = c.SetWriteBuffer(size)
		}
		if err == nil {
			return nil
		}
	}
	return err
}

func bufferSize(*net.UDPConn, bufferKind) (int, bool) { return 0, false }

// setPktinfo asks for the address that each datagram was sent to, on a socket of either family.
func setPktinfo(c *net.UDPConn) error {
	err6 := ipv6.NewPacketConn(c).SetControlMessage(ipv6.FlagDst, true)
	err4 := ipv4.NewPacketConn(c).SetControlMessage(ipv4.FlagDst, true)
	if err6 != nil && err4 != nil {
		return err4
	}
	return nil
}

func kernelQueue(*net.UDPConn) (drops, bytes uint64, ok bool) { return 0, 0, false }

func broadcast(net.IP) bool { return false }

func cookie(*net.UDPConn) uint64 { return 0 }
