package fastudp

import "net"

// newIO is the best way to do the I/O of a socket on this system.
func newIO(c *net.UDPConn, pktinfo bool, o Options, packets []packet, count *counters) (packetIO, error) {
	return newMmsgIO(c, pktinfo, packets, o.Batch, count)
}
