package load

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	headerSize = 12
	numIDs     = 1 << 16
)

// socket is one source port. One goroutine sends on it, another reads.
type socket struct {
	conn  *net.UDPConn
	batch batchConn

	// The sender's.
	slots  []slot
	id     uint16 // the next
	oldest uint16 // no query before it is unanswered; of the closed loop
	out    []ipv4.Message
	ids    [batch]uint16
	sent   uint64
	late   uint64

	answered atomic.Uint64
	lost     atomic.Uint64
	asked    atomic.Uint64 // = sent, for others to read
	more     chan struct{} // there was an answer since the sender looked
	broken   atomic.Pointer[error]

	// The reader's.
	in        []ipv4.Message
	duplicate uint64
	stray     uint64
	rcodes    [16]uint64
	latency   *hdrhistogram.Histogram
}

// batchConn is what ipv4.PacketConn and ipv6.PacketConn have in common.
type batchConn interface {
	ReadBatch([]ipv4.Message, int) (int, error)
	WriteBatch([]ipv4.Message, int) (int, error)
}

// slot is what became of the last query with an ID. Its word is the time at which it was sent, in ns
// since the beginning, and the state in the lowest two bits.
type slot struct {
	word atomic.Int64
	due  atomic.Int64 // from when its latency counts; written before the word
}

const (
	never     = iota // not asked yet
	waiting          // for the answer
	done             // answered
	gone             // lost
	stateMask = 3
)

func newSocket(c *net.UDPConn, v6 bool) *socket {
	s := &socket{
		conn: c, slots: make([]slot, numIDs), more: make(chan struct{}, 1), latency: newHistogram(),
		out: make([]ipv4.Message, batch), in: make([]ipv4.Message, batch),
	}
	s.batch = ipv4.NewPacketConn(c)
	if v6 {
		s.batch = ipv6.NewPacketConn(c)
	}
	for i := range batch {
		s.out[i].Buffers = [][]byte{nil}
		s.in[i].Buffers = [][]byte{make([]byte, 64)} // of an answer we read the header
	}
	return s
}

// outstanding is how many queries are neither answered nor lost.
func (s *socket) outstanding() int {
	return int(s.asked.Load() - s.answered.Load() - s.lost.Load())
}

// send sends n questions from first on. due says since when the i-th counts; 0 is since now.
func (s *socket) send(r *run, first uint64, n int, due func(i int) int64) {
	for i := range n {
		b := r.Question(first+uint64(i), s.out[i].Buffers[0][:0])
		s.ids[i] = s.freeID(r)
		if len(b) >= 2 {
			binary.BigEndian.PutUint16(b, s.ids[i])
		}
		s.out[i].Buffers[0] = b
	}
	now := r.now()
	for i, id := range s.ids[:n] {
		at := due(i)
		if at == 0 {
			at = now
		}
		if now-at > int64(lateAfter) {
			s.late++
		}
		s.slots[id].due.Store(at)
		s.slots[id].word.Store(now&^stateMask | waiting)
	}
	s.sent += uint64(n)
	s.asked.Store(s.sent)
	for done := 0; done < n; {
		k, err := s.batch.WriteBatch(s.out[done:n], 0)
		done += max(k, 0)
		switch {
		case err == nil || errors.Is(err, syscall.ECONNREFUSED): // an earlier query's: again
		case transient(err):
			done++ // lost
		default:
			s.fail(err)
			return
		}
	}
}

// fail ends the run.
func (s *socket) fail(err error) { s.broken.CompareAndSwap(nil, &err) }

// freeID is the next ID whose query is answered or has timed out.
func (s *socket) freeID(r *run) uint16 {
	for i := 0; ; i++ {
		id := s.id
		s.id++
		w := s.slots[id].word.Load()
		if w&stateMask != waiting || s.expireSlot(id, r.now()-int64(r.Timeout)) {
			return id
		}
		if i%numIDs == numIDs-1 { // only an open loop that catches up gets here
			time.Sleep(time.Millisecond)
		}
	}
}

// expireSlot marks the query with the ID lost if it was sent before the time and is unanswered.
func (s *socket) expireSlot(id uint16, before int64) bool {
	w := s.slots[id].word.Load()
	if w&stateMask != waiting || w > before || !s.slots[id].word.CompareAndSwap(w, w&^stateMask|gone) {
		return false
	}
	s.lost.Add(1)
	return true
}

// expire marks what has timed out, oldest first.
func (s *socket) expire(r *run, now int64) {
	for s.oldest != s.id {
		if s.slots[s.oldest].word.Load()&stateMask == waiting && !s.expireSlot(s.oldest, now-int64(r.Timeout)) {
			return
		}
		s.oldest++
	}
}

// expireAll marks all that is unanswered lost.
func (s *socket) expireAll() {
	for id := range numIDs {
		s.expireSlot(uint16(id), 1<<62)
	}
}

// awaitAnswer returns after the next answer, or soon.
func (s *socket) awaitAnswer(t *time.Timer) {
	t.Reset(poll)
	select {
	case <-s.more:
	case <-t.C:
	}
}

// transient says whether to go on after a failed call. An earlier query's ICMP error fails the next
// call on a connected socket.
func transient(err error) bool {
	for _, e := range []error{syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENOBUFS, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// read counts answers until the run has ended.
func (r *run) read(s *socket) {
	for {
		n, err := s.batch.ReadBatch(s.in, 0)
		if err != nil && (r.ended.Load() || !transient(err) && !errors.Is(err, os.ErrDeadlineExceeded)) {
			if !r.ended.Load() {
				s.fail(err)
			}
			return
		}
		now := r.now()
		for i := range max(n, 0) {
			s.answer(s.in[i].Buffers[0][:s.in[i].N], now, int64(r.Timeout))
		}
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// answer counts one received message.
func (s *socket) answer(b []byte, now, timeout int64) {
	if len(b) < headerSize || b[2]&0x80 == 0 {
		s.stray++
		return
	}
	sl := &s.slots[binary.BigEndian.Uint16(b)]
	w := sl.word.Load()
	due := sl.due.Load()
	switch {
	case w&stateMask == done:
		s.duplicate++
	case w&stateMask == waiting && w >= now-timeout && sl.word.CompareAndSwap(w, w&^stateMask|done):
		s.answered.Add(1)
		s.rcodes[b[3]&0xf]++
		s.latency.RecordValue(min(max(now-due, 1), int64(maxLatency)))
	default:
		s.stray++ // its sender counts it as lost
	}
}
