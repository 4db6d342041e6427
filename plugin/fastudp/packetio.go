package fastudp

import "net"

// maxQuery is the longest query that is read whole. Stock CoreDNS reads 512 bytes.
const maxQuery = 4096

// packet is one received datagram. It belongs to its batch, which is refilled when all its packets
// have been taken.
type packet struct {
	data []byte
	long bool // the datagram was longer than maxQuery, data is its beginning
	peer peer
}

// newPackets makes n packets and the memory that they are received into. The stride is no power of
// two: the first bytes of all packets would fall into the same few sets of the processor's cache.
func newPackets(n int) []packet {
	const stride = maxQuery + 192
	ps, mem := make([]packet, n), make([]byte, n*stride)
	for i := range ps {
		ps[i].data = mem[i*stride : i*stride+maxQuery : i*stride+maxQuery]
	}
	return ps
}

// packetIO is one socket as its engine sees it, an implementation for each way to do the I/O.
// receive and pause are called by one goroutine at a time, and so is send.
type packetIO interface {
	// receive fills ps from its start and returns how many datagrams it got. With wait it blocks
	// until there is one, and says whether it had to; without, it may return none.
	receive(ps []packet, wait bool) (n int, waited bool, err error)

	// send transmits rs in order and blocks while the send buffer is full. What cannot be sent is
	// counted, never retried, and costs no other response.
	send(rs []*reply) error

	// pause lets everything else that is ready to run have its turn.
	pause()

	// interrupt makes a waiting receive return an error that wraps os.ErrDeadlineExceeded, once.
	interrupt()

	// detach makes the kernel deliver no more datagrams; those already queued can be received.
	detach()

	// conn is the socket. Closing it ends all calls under way with an error that wraps net.ErrClosed.
	conn() *net.UDPConn
	close()
}
