package fastudp

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestLateAnswer has a second goroutine answer just when the reader is done with the batch: swept
// over the reader's way from the handler to the empty socket, no answer may be left lying.
func TestLateAnswer(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	io := &lateIO{fail: t.Errorf, rounds: 200_000, until: time.Now().Add(time.Second)}
	packets := newPackets(1)
	var handed atomic.Pointer[reply]
	e := newEngine(io, Options{Batch: 64, FairnessCap: 256}, nil, packets, new(counters), func(e *engine, p *packet) {
		r := newReply()
		r.buf, r.peer = append(r.buf[:0], p.data...), p.peer
		e.took()
		handed.Store(r)
	})
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		var sink atomic.Int64
		for n := 0; !io.over.Load(); n++ {
			r := handed.Swap(nil)
			if r == nil {
				if n%1000 == 0 {
					runtime.Gosched()
				}
				continue
			}
			for range io.asked.Load() % 100 {
				sink.Add(1)
			}
			e.out.add(r)
		}
	}()
	e.start()
	awaitStop(t, e)
	<-writer
}

// lateIO is a socket to which the next message comes only after the answer to the last one went out.
type lateIO struct {
	fail   func(format string, args ...any)
	rounds int64
	until  time.Time // on a busy machine spinning is slow: no more rounds after this
	asked  atomic.Int64
	sent   atomic.Int64
	over   atomic.Bool
}

func (l *lateIO) receive(ps []packet, _ bool) (int, bool, error) {
	asked := l.asked.Load()
	var end time.Time
	for n := 1; l.sent.Load() != asked; n++ {
		if n%100 == 0 {
			runtime.Gosched()
		}
		if n%10000 == 0 {
			if end.IsZero() {
				end = time.Now().Add(stuckLimit)
			} else if time.Now().After(end) {
				l.fail("no answer to message %d without another one\n%s", asked, goroutines())
				l.over.Store(true)
				return 0, false, net.ErrClosed
			}
		}
	}
	if asked == l.rounds || (asked%100 == 0 && time.Now().After(l.until)) {
		l.over.Store(true)
		return 0, false, net.ErrClosed
	}
	ps[0].data = append(ps[0].data[:0], "a message"...)
	l.asked.Add(1)
	return 1, false, nil
}

func (l *lateIO) send(rs []*reply) error {
	l.sent.Add(int64(len(rs)))
	return nil
}

func (l *lateIO) pause()             { runtime.Gosched() }
func (l *lateIO) interrupt()         {}
func (l *lateIO) detach()            {}
func (l *lateIO) conn() *net.UDPConn { return nil }
func (l *lateIO) close()             {}
