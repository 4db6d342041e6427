package fastudp

import (
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// A test message is an ordinary query for a name that holds the message's number and the slot of the
// batch that it was received into, so that its answer tells both.
const (
	testLabel = 12 // hexadecimal digits
	testQuery = headerSize + 1 + testLabel + 1 + 4
)

func appendTestQuery(b []byte, id, slot int) []byte {
	var n [testLabel / 2]byte
	binary.BigEndian.PutUint32(n[:], uint32(id))
	binary.BigEndian.PutUint16(n[4:], uint16(slot))
	b = append(b, byte(id>>8), byte(id), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, testLabel)
	b = hex.AppendEncode(b, n[:])
	return append(b, 0, 0, byte(dns.TypeA), 0, byte(dns.ClassINET))
}

// readTestQuery finds the numbers in a message or its answer; ok is false for any other bytes.
func readTestQuery(b []byte) (id, slot int, ok bool) {
	if len(b) < testQuery {
		return 0, 0, false
	}
	return readTestName(b[headerSize+1 : headerSize+1+testLabel])
}

func readTestName(label []byte) (id, slot int, ok bool) {
	var n [testLabel / 2]byte
	if _, err := hex.Decode(n[:], label); err != nil {
		return 0, 0, false
	}
	return int(binary.BigEndian.Uint32(n[:])), int(binary.BigEndian.Uint16(n[4:])), true
}

// testPeer is the client that sends message id.
func testPeer(id int) peer {
	return peer{
		addr:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(id >> 16), byte(id >> 8), byte(id)}), uint16(1024+id%60000)),
		local: netip.AddrFrom4([4]byte{127, 1, byte(id >> 8), byte(id)}),
	}
}

// fakeIO is a socket whose kernel is the test. It checks what an engine owes a packetIO: one reader,
// one sender, no packet refilled that is in use, a pause at the fairness cap.
type fakeIO struct {
	fail func(format string, args ...any) // from any goroutine
	cap  int                              // fairness cap, 0 is not checked

	// What a test may vary; nil is the plain thing. receive calls the first two with mu held.
	chunk func(most int) int // how many datagrams one receive gets, 1..most
	fault func() error       // what one receive fails with
	stall func(n int)        // may block a send of n responses
	sent  func(id int)       // sees each response that went out

	gathered func() // a gather is over
	gathers  atomic.Int64
	waiting  atomic.Bool // the reader, and nothing has arrived since
	coarse   bool        // timers
	alone    bool        // datagrams arrive in gather or while the reader waits only

	reading, sending atomic.Bool
	inUse            []atomic.Bool // by slot, cleared by a handler that knows when
	trackUse         bool

	mu          sync.Mutex
	arrival     sync.Cond
	queue       []int // datagrams that the kernel holds
	interrupted bool
	closed      bool
	detached    int
	interrupts  int
	received    []int
	served      int // since the last pause or wait, the reader's alone
}

func newFakeIO(t testing.TB, batch int) *fakeIO {
	f := &fakeIO{fail: t.Errorf, inUse: make([]atomic.Bool, batch)}
	f.arrival.L = &f.mu
	return f
}

// arrive has datagrams come in.
func (f *fakeIO) arrive(ids ...int) {
	f.mu.Lock()
	f.queue = append(f.queue, ids...)
	f.waiting.Store(false)
	f.arrival.Broadcast()
	f.mu.Unlock()
}

func (f *fakeIO) receive(ps []packet, wait bool) (int, bool, error) {
	if !f.reading.CompareAndSwap(false, true) {
		f.fail("two readers at once")
	}
	defer f.reading.Store(false)
	if f.cap > 0 && f.served+len(ps) > f.cap {
		f.fail("%d messages served without a pause and %d asked for, the fairness cap is %d", f.served, len(ps), f.cap)
	}
	for i := range ps {
		if f.inUse[i].Load() {
			f.fail("packet %d is received into while its claimer still needs it", i)
		}
		// Who still looks at the old message finds rubbish, and the race detector finds him.
		b := ps[i].data[:testQuery]
		for j := range b {
			b[j] = 0xff
		}
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	waited := false
	for {
		switch {
		case f.closed:
			return 0, waited, net.ErrClosed
		case f.interrupted:
			f.interrupted = false
			return 0, waited, os.ErrDeadlineExceeded
		}
		if f.fault != nil {
			if err := f.fault(); err != nil {
				return 0, waited, err
			}
		}
		if len(f.queue) > 0 {
			break
		}
		if !wait {
			return 0, false, nil
		}
		waited = true
		f.waiting.Store(true)
		f.arrival.Wait()
	}
	n := min(len(ps), len(f.queue))
	if f.chunk != nil {
		n = f.chunk(n)
	}
	for i, id := range f.queue[:n] {
		ps[i].data = appendTestQuery(ps[i].data[:0], id, i)
		ps[i].long = false
		ps[i].peer = testPeer(id)
		f.inUse[i].Store(f.trackUse)
	}
	f.received = append(f.received, f.queue[:n]...)
	f.queue = f.queue[n:]
	if waited {
		f.served = 0
	}
	f.served += n
	return n, waited, nil
}

func (f *fakeIO) send(rs []*reply) error {
	if !f.sending.CompareAndSwap(false, true) {
		f.fail("two senders at once")
	}
	defer f.sending.Store(false)
	if len(rs) == 0 {
		f.fail("a send of nothing")
	}
	if f.stall != nil {
		f.stall(len(rs))
	}
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	if closed {
		return net.ErrClosed
	}
	// Looked at after the stall: a response that somebody else reuses meanwhile has changed.
	for _, r := range rs {
		id, _, ok := readTestQuery(r.buf)
		if !ok {
			f.fail("a response with other bytes than were written: %x", r.buf)
			continue
		}
		if r.peer != testPeer(id) {
			f.fail("the response to message %d goes to %v, not to %v", id, r.peer, testPeer(id))
		}
		if f.sent != nil {
			f.sent(id)
		}
	}
	return nil
}

func (f *fakeIO) pause() {
	if !f.reading.CompareAndSwap(false, true) {
		f.fail("a pause while another worker reads")
	}
	f.served = 0
	f.reading.Store(false)
}

func (f *fakeIO) canGather() bool { return !f.coarse }

// gather has the socket's datagrams of a while arrive, if the test has some for it.
func (f *fakeIO) gather() {
	if !f.reading.CompareAndSwap(false, true) {
		f.fail("gathering while another worker reads")
	}
	defer f.reading.Store(false)
	if n := f.queued(); n > 0 && f.alone {
		f.fail("gathering with %d datagrams in the queue", n)
	}
	f.gathers.Add(1)
	if f.gathered != nil {
		f.gathered()
	}
	runtime.Gosched()
}

func (f *fakeIO) interrupt() {
	f.mu.Lock()
	f.interrupts++
	f.interrupted = true
	f.arrival.Broadcast()
	f.mu.Unlock()
}

func (f *fakeIO) detach() {
	f.mu.Lock()
	f.detached++
	f.mu.Unlock()
}

func (f *fakeIO) conn() *net.UDPConn { return nil }

func (f *fakeIO) close() {
	f.mu.Lock()
	f.closed = true
	f.arrival.Broadcast()
	f.mu.Unlock()
}

// queued is what the kernel holds.
func (f *fakeIO) queued() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.queue)
}

// testLocal is the address of a listener that has no socket.
var testLocal = &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 53}
