package test

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// prompt is how long a name that is answered at once may take while others sleep for 2 seconds and more.
const prompt = 500 * time.Millisecond

// load keeps window queries unanswered on each of several sockets until stop, and sends another for one that is lost.
func load(t *testing.T, addr string, sockets, window int) (answers func() int64, stop func()) {
	t.Helper()
	var count atomic.Int64
	var end atomic.Bool
	var wg sync.WaitGroup
	msg := query("fast.test.", dns.TypeA)
	for range sockets {
		c := dial(t, addr)
		c.SetReadBuffer(1 << 20)
		wg.Go(func() {
			buf := make([]byte, 2048)
			for open := 0; !end.Load(); {
				for ; open < window; open++ {
					c.Write(msg)
				}
				c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
				if _, err := c.Read(buf); err == nil {
					count.Add(1)
				}
				open--
			}
		})
	}
	return count.Load, sync.OnceFunc(func() { end.Store(true); wg.Wait() })
}

func withProcs(t *testing.T, f func(t *testing.T)) {
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprint("GOMAXPROCS=", n), func(t *testing.T) {
			before := runtime.GOMAXPROCS(n)
			defer runtime.GOMAXPROCS(before)
			f(t)
		})
	}
}

const oneSocket = ".:0 {\n bind 127.0.0.1\n fastudp 1 {\n max_inflight 0\n }\n sleep\n}\n"

// sleeping sends queries that no handler answers before release, and returns when all are in handlers.
func sleeping(t *testing.T, addr string, n int) (release func()) {
	t.Helper()
	h := holdName(t)
	c := dial(t, addr)
	for i := range n {
		c.Write(setID(query(h.name, dns.TypeA), uint16(i)))
		if i%50 == 49 {
			// No more than the smallest receive queue holds.
			eventually(t, fmt.Sprintf("%d queries are in handlers", i+1), patience, func() bool { return h.entered.Load() > int64(i) })
		}
	}
	eventually(t, "the queries are in handlers", patience, func() bool { return h.entered.Load() == int64(n) })
	return h.release
}

func TestBlockedOneAtATime(t *testing.T) {
	withProcs(t, func(t *testing.T) {
		inst := start(t, oneSocket)
		addr := udpAddrs(inst)[0]
		slow, fast := dial(t, addr), dial(t, addr)
		for range 5 {
			h := holdName(t)
			if _, err := slow.Write(query(h.name, dns.TypeA)); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				if roundTrip(t, fast, query("fast.test.", dns.TypeA), prompt) == nil {
					t.Fatalf("a blocked query delays another by %v and more", prompt)
				}
			}
			h.release()
			slow.SetReadDeadline(time.Now().Add(patience))
			if _, err := slow.Read(make([]byte, 512)); err != nil {
				t.Fatalf("the blocked query, released, is not answered: %v", err)
			}
		}
	})
}

// TestBlockedSleep is the same with handlers that go on by themselves, in and out of order.
func TestBlockedSleep(t *testing.T) {
	inst := start(t, oneSocket)
	c := dial(t, udpAddrs(inst)[0])
	begin := time.Now()
	c.Write(setID(query("sleep-2000.test.", dns.TypeA), 1))
	c.Write(setID(query("sleep-100.test.", dns.TypeA), 2))
	c.Write(setID(query("fast.test.", dns.TypeA), 3))
	buf := make([]byte, 512)
	for _, want := range []struct {
		id      byte
		from    time.Duration
		through time.Duration
	}{{3, 0, 100 * time.Millisecond}, {2, 100 * time.Millisecond, time.Second}, {1, 2 * time.Second, 3 * time.Second}} {
		c.SetReadDeadline(time.Now().Add(patience))
		if _, err := c.Read(buf); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(begin); buf[1] != want.id || got < want.from || got > want.through {
			t.Errorf("answer %d after %v, expected answer %d after %v to %v", buf[1], got, want.id, want.from, want.through)
		}
	}
}

func TestBlockedUnderLoad(t *testing.T) {
	withProcs(t, func(t *testing.T) {
		inst := start(t, oneSocket)
		addr := udpAddrs(inst)[0]
		answers, stopLoad := load(t, addr, 10, 300)
		defer stopLoad()
		eventually(t, "the load is answered", patience, func() bool { return answers() > 3000 })
		for range 3 {
			release := sleeping(t, addr, 1)
			before := answers()
			eventually(t, "the load goes on beside a blocked query", prompt, func() bool { return answers()-before > 1000 })
			release()
		}
	})
}

func TestBlockedThousand(t *testing.T) {
	withProcs(t, func(t *testing.T) {
		inst := start(t, oneSocket)
		addr := udpAddrs(inst)[0]
		release := sleeping(t, addr, 1000)
		c := dial(t, addr)
		for range 50 {
			if roundTrip(t, c, query("fast.test.", dns.TypeA), prompt) == nil {
				t.Fatalf("1000 blocked queries delay another by %v and more", prompt)
			}
		}
		msgs := make([][]byte, 5000)
		for i := range msgs {
			msgs[i] = query("fast.test.", dns.TypeA)
		}
		if got := answered(pipeline(t, c, msgs, 100, prompt)); got != len(msgs) {
			t.Errorf("%d of %d fast queries are answered beside 1000 blocked ones", got, len(msgs))
		}
		release()
	})
}

// TestBlockedAnswerWaitsForNoPacket: a response that is queued and not flushed would lie until the next query.
func TestBlockedAnswerWaitsForNoPacket(t *testing.T) {
	const n, gap = 40, 50 * time.Millisecond
	withProcs(t, func(t *testing.T) {
		var conns [2]*net.UDPConn
		var took [2][]time.Duration
		for i, corefile := range []string{stock(oneSocket), oneSocket} {
			conns[i] = dial(t, udpAddrs(start(t, corefile))[0])
		}
		tick := time.NewTicker(gap / 2) // by turns, so that a busy machine hits both alike
		defer tick.Stop()
		for i := range 2 * n {
			begin := time.Now()
			if roundTrip(t, conns[i%2], query("fast.test.", dns.TypeA), patience) == nil {
				t.Fatalf("no answer to query %d", i)
			}
			took[i%2] = append(took[i%2], time.Since(begin))
			<-tick.C
		}
		stocks, ours := median(took[0]), median(took[1])
		if ours > 3*stocks+time.Millisecond {
			t.Errorf("median round trip %v, stock %v", ours, stocks)
		}
		if most, stocks := quantile(took[1], 100), quantile(took[0], 100); most > 30*time.Millisecond && stocks <= 30*time.Millisecond {
			t.Errorf("longest round trip %v, stock %v", most, stocks)
		}
		t.Logf("median %v, longest %v; stock %v and %v", ours, took[1][n-1], stocks, took[0][n-1])
	})
}
