//go:build !linux

package fastudp

import "net"

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

func setPktinfo(c *net.UDPConn) error { return enablePktinfo(c) }

func kernelQueue(*net.UDPConn) (drops, bytes uint64, ok bool) { return 0, 0, false }
