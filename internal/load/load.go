// Package load asks a DNS server questions over UDP, as many as it can take or at a given rate, and
// counts every answer.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Config says what to ask and how fast.
type Config struct {
	Target  netip.AddrPort
	Source  netip.Addr // none: the system's choice
	Sockets int        // with a source port each; 0: 1

	Rate        float64 // queries a second over all sockets; 0: as fast as the closed loop allows
	Outstanding int     // closed loop: at most so many unanswered for each socket; 0: open loop

	Questions [][]byte                        // wire messages, sent in turn; the ID is overwritten if there is room for one
	Question  func(n uint64, b []byte) []byte // instead of Questions: appends the n-th, from 0, to b; called by several goroutines

	Duration time.Duration   // the end by time and
	Count    uint64          // by number, whichever comes first; 0: none, but not for both
	Stop     <-chan struct{} // optional: the end when it is closed, for whom to cancel the context is too abrupt
	Timeout  time.Duration   // after which a query counts as lost; 0: a second
}

// Result is what became of the queries: Sent = Answered + Lost.
type Result struct {
	Sent, Answered, Lost uint64
	Duplicate            uint64 // further answers to a query that has one
	Stray                uint64 // answers to what was not asked, or too late
	Overrun              uint64 // answers that our own receive queues had no room for (Linux); they count as lost
	Late                 uint64 // sent more than a millisecond after they were due: the generator was the limit
	Rcodes               map[int]uint64
	Latency              *hdrhistogram.Histogram // ns; with a Rate from the time a query was due, else from when it was sent
	Elapsed              time.Duration           // of sending
}

const (
	defaultTimeout = time.Second
	lateAfter      = time.Millisecond
	maxLatency     = 10 * time.Second
	batch          = 64
	receiveBuffer  = 8 << 20
	// linger is how long we listen for answers too many when there is nothing to wait for.
	linger = 50 * time.Millisecond
	// poll is how often who waits looks whether to go on.
	poll = 20 * time.Millisecond
)

func (c *Config) check() error {
	if c.Sockets == 0 {
		c.Sockets = 1
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Question == nil {
		q := c.Questions
		if len(q) == 0 {
			return errors.New("load: no questions")
		}
		c.Question = func(n uint64, b []byte) []byte { return append(b, q[n%uint64(len(q))]...) }
	}
	switch {
	case c.Sockets < 0 || c.Rate < 0 || c.Outstanding < 0 || c.Timeout < 0 || c.Duration < 0:
		return errors.New("load: a number is negative")
	case c.Duration == 0 && c.Count == 0:
		return errors.New("load: no end: give a duration or a count")
	case c.Outstanding == 0 && c.Rate == 0:
		return errors.New("load: an open loop needs a rate")
	case c.Outstanding > numIDs/2:
		return fmt.Errorf("load: at most %d queries can be outstanding on a socket", numIDs/2)
	case c.Outstanding == 0 && c.Rate/float64(c.Sockets)*c.Timeout.Seconds() > numIDs/2:
		return fmt.Errorf("load: %d sockets are too few for %.0f queries a second and a timeout of %v: IDs would be used again too soon", c.Sockets, c.Rate, c.Timeout)
	}
	return nil
}

// run is one Run under way.
type run struct {
	Config
	ctx     context.Context
	begin   time.Time
	next    atomic.Uint64 // question
	ended   atomic.Bool   // nothing more is expected
	sockets []*socket
}

// Run asks until the end and then waits for the last answers. If ctx ends first it returns what it has
// counted by then with ctx's error.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	r := &run{Config: c, ctx: ctx}
	defer func() {
		for _, s := range r.sockets {
			s.conn.Close()
		}
	}()
	for range c.Sockets {
		s, err := r.open()
		if err != nil {
			return Result{}, err
		}
		r.sockets = append(r.sockets, s)
	}

	r.begin = time.Now()
	var readers, senders sync.WaitGroup
	for _, s := range r.sockets {
		readers.Go(func() { r.read(s) })
		if c.Outstanding > 0 {
			senders.Go(func() { r.sendClosed(s) })
		}
	}
	if c.Outstanding == 0 {
		r.sendOpen()
	}
	senders.Wait()
	elapsed := time.Since(r.begin)
	r.awaitLast()
	r.ended.Store(true)
	for _, s := range r.sockets {
		s.conn.SetReadDeadline(time.Unix(1, 0))
	}
	readers.Wait()
	return r.result(elapsed), errors.Join(ctx.Err(), r.failure())
}

// now is the time since the beginning, in nanoseconds, never 0.
func (r *run) now() int64 { return int64(time.Since(r.begin)) + 1 }

// take reserves up to n questions: first, and how many.
func (r *run) take(n int) (uint64, int) {
	first := r.next.Add(uint64(n)) - uint64(n)
	if r.Count > 0 && first+uint64(n) > r.Count {
		n = int(max(r.Count, first) - first)
	}
	return first, n
}

// over says whether to send no more.
func (r *run) over(now int64) bool {
	select {
	case <-r.Stop:
		return true
	default:
	}
	return r.ctx.Err() != nil || r.Duration > 0 && now > int64(r.Duration) || r.Count > 0 && r.next.Load() >= r.Count
}

// awaitLast returns when every query is answered and answers too many had some time too, or when the
// last query has timed out.
func (r *run) awaitLast() {
	end := r.now() + int64(r.Timeout)
	quiet := int64(0)
	for r.ctx.Err() == nil {
		now := r.now()
		switch {
		case now > end:
			return
		case slices.ContainsFunc(r.sockets, func(s *socket) bool { return s.outstanding() > 0 }):
			quiet = 0
		case quiet == 0:
			quiet = now
		case now-quiet > int64(linger):
			return
		}
		time.Sleep(poll / 10)
	}
}

func (r *run) failure() error {
	for _, s := range r.sockets {
		if err := s.broken.Load(); err != nil {
			return fmt.Errorf("load: %w", *err)
		}
	}
	return nil
}

func (r *run) result(elapsed time.Duration) Result {
	res := Result{Rcodes: make(map[int]uint64), Latency: newHistogram(), Elapsed: elapsed}
	for _, s := range r.sockets {
		s.expireAll()
		res.Sent += s.sent
		res.Answered += s.answered.Load()
		res.Lost += s.lost.Load()
		res.Duplicate += s.duplicate
		res.Stray += s.stray
		res.Late += s.late
		res.Overrun += overrun(s.conn)
		for i, n := range s.rcodes {
			if n > 0 {
				res.Rcodes[i] += n
			}
		}
		res.Latency.Merge(s.latency)
	}
	return res
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(maxLatency), 3) }

// sendOpen sends each query when it is due, whatever became of those before, all from one thread:
// what is due goes to one socket, what is due next to the next.
func (r *run) sendOpen() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	gap := float64(time.Second) / r.Rate
	var sent uint64
	for k := 0; ; k++ {
		now := r.now()
		if r.over(now) || r.failure() != nil {
			return
		}
		due := uint64(float64(now)/gap) + 1 // the first is due at 0
		if due <= sent {
			pause(max(time.Duration(float64(sent)*gap)-time.Duration(now), tick))
			continue
		}
		first, n := r.take(int(min(due-sent, batch)))
		r.sockets[k%len(r.sockets)].send(r, first, n, func(i int) int64 { return int64(float64(sent+uint64(i))*gap) + 1 })
		sent += uint64(n)
	}
}

// tick is the least that an open loop pauses: at high rates it sends what is due in a tick in one batch.
const tick = 50 * time.Microsecond

// sendClosed keeps up to Outstanding queries unanswered on s, no more than Rate allows.
func (r *run) sendClosed(s *socket) {
	gap := 0.0
	if r.Rate > 0 {
		gap = float64(time.Second) / r.Rate * float64(len(r.sockets))
	}
	timer := time.NewTimer(poll)
	defer timer.Stop()
	for {
		now := r.now()
		if r.over(now) || s.broken.Load() != nil {
			return
		}
		s.expire(r, now)
		n := min(r.Outstanding-s.outstanding(), batch)
		if n <= 0 {
			s.awaitAnswer(timer)
			continue
		}
		dueAt := func(int) int64 { return 0 }
		if gap > 0 {
			due := int(now/int64(gap)) + 1 - int(s.sent)
			if due <= 0 {
				pause(max(time.Duration(float64(s.sent)*gap)-time.Duration(now), tick))
				continue
			}
			n = min(n, due)
			base := s.sent
			dueAt = func(i int) int64 { return int64(float64(base+uint64(i))*gap) + 1 }
		}
		first, n := r.take(n)
		s.send(r, first, n, dueAt)
	}
}

func (r *run) open() (*socket, error) {
	var from *net.UDPAddr
	if r.Source.IsValid() {
		from = net.UDPAddrFromAddrPort(netip.AddrPortFrom(r.Source, 0))
	}
	c, err := net.DialUDP("udp", from, net.UDPAddrFromAddrPort(r.Target))
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	setReceiveBuffer(c)
	return newSocket(c, r.Target.Addr().Unmap().Is6()), nil
}
