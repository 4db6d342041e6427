//go:build !linux

package fastudp

import "net"

// newIO is the best way to do the I/O of a socket on this system.
func newIO(c *net.UDPConn, pktinfo bool, _ Options, _ []packet, count *counters) (packetIO, error) {
	return newSingleIO(c, pktinfo, count), nil
}
