package fastudp

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// gated is a handler that answers when the gate opens, as many wait for one slow upstream.
type gated struct{ gate atomic.Pointer[chan struct{}] }

func (g *gated) ServeDNS(_ context.Context, w dns.ResponseWriter, r *dns.Msg) {
	<-*g.gate.Load()
	m := new(dns.Msg)
	m.SetReply(r)
	w.WriteMsg(m)
}

// TestAnswersAtOnce has thousands of handlers answer at the same moment: the kernel takes all
// of it, one after the other, and none is dropped on the way there.
func TestAnswersAtOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	eachIO(t, func(t *testing.T, k ioKind) {
		const n, rounds = 4000, 3
		s := openTestSocket(t, k, "127.0.0.1:0", false, defaultBatch)
		c := dialTest(t, s.at("127.0.0.1"))
		var e *engine
		wait := func(done func() bool) {
			for end := time.Now().Add(ioLimit); !done(); time.Sleep(100 * time.Microsecond) {
				if time.Now().After(end) {
					t.Fatalf("%d received, %d in handlers, %d sent", s.count.received.Load(), e.inflight(), s.count.sent.Load())
				}
			}
		}
		h := new(gated)
		l := &listener{handler: h, ctx: context.Background(), local: testLocal}
		e = newEngine(s.packetIO, Options{Batch: defaultBatch, FairnessCap: defaultFairnessCap}, newBudget(n, 1), s.packets, s.count, l.serve)
		for r := range rounds {
			gate := make(chan struct{})
			h.gate.Store(&gate)
			if r == 0 {
				e.start()
			}
			for i := 1; i <= n; i++ {
				mustWrite(t, c, appendTestQuery(nil, i, 0))
				if i%200 == 0 {
					wait(func() bool { return e.inflight() == int64(i) })
				}
			}
			close(gate)
			wait(func() bool { return e.inflight() == 0 })
			wait(func() bool { return s.count.sent.Load() == uint64((r+1)*n) })
		}
		stopEngine(e)
	})
}
