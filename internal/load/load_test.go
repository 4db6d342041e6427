package load

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// question is a message that the echo server below treats as its last byte says.
func question(do byte) []byte {
	q := make([]byte, headerSize+8)
	q[len(q)-1] = do
	return q
}

const (
	doAnswer = iota
	doDrop
	doTwice
	doDelay // by delay
	doLate  // by 8 * delay
	doOtherID
	doFail // SERVFAIL
	doShort
	doQuery // the question itself comes back
)

const delay = 100 * time.Millisecond

// echo is a server on which queries are counted.
type echo struct {
	addr  netip.AddrPort
	asked atomic.Uint64
	mu    sync.Mutex
	last  map[netip.AddrPort]map[uint16]bool // IDs by source
}

func newEcho(t *testing.T, host string) *echo {
	t.Helper()
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(host), 0)))
	if err != nil {
		t.Skipf("no IPv6: %v", err)
	}
	c.SetReadBuffer(4 << 20)
	t.Cleanup(func() { c.Close() })
	e := &echo{addr: c.LocalAddr().(*net.UDPAddr).AddrPort(), last: make(map[netip.AddrPort]map[uint16]bool)}
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			e.asked.Add(1)
			if n < headerSize {
				continue
			}
			e.mu.Lock()
			if e.last[from] == nil {
				e.last[from] = make(map[uint16]bool)
			}
			e.last[from][binary.BigEndian.Uint16(buf)] = true
			e.mu.Unlock()
			b := append([]byte(nil), buf[:n]...)
			b[2] |= 0x80
			send := func() { c.WriteToUDPAddrPort(b, from) }
			switch b[n-1] {
			case doAnswer:
				send()
			case doTwice:
				send()
				send()
			case doDelay:
				time.AfterFunc(delay, send)
			case doLate:
				time.AfterFunc(8*delay, send)
			case doOtherID:
				b[0] ^= 0x80
				send()
			case doFail:
				b[3] |= 2
				send()
			case doShort:
				b = b[:headerSize-1]
				send()
			case doQuery:
				b[2] &^= 0x80
				send()
			}
		}
	}()
	return e
}

// loops runs f with an open loop and with closed ones.
func loops(t *testing.T, f func(t *testing.T, c Config)) {
	for name, c := range map[string]Config{
		"open":             {Rate: 5000},
		"closed":           {Outstanding: 50},
		"closed at a rate": {Outstanding: 100, Rate: 5000},
	} {
		t.Run(name, func(t *testing.T) { f(t, c) })
	}
}

func mustRun(t *testing.T, c Config) Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sent != r.Answered+r.Lost {
		t.Errorf("%d sent, %d answered, %d lost", r.Sent, r.Answered, r.Lost)
	}
	if n := uint64(r.Latency.TotalCount()); n != r.Answered {
		t.Errorf("%d latencies of %d answers", n, r.Answered)
	}
	return r
}

func TestAnswersAreCounted(t *testing.T) {
	const each = 20
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			loops(t, func(t *testing.T, c Config) {
				e := newEcho(t, host)
				c.Target, c.Sockets, c.Count, c.Timeout = e.addr, 3, 9*each, 4*delay
				for do := range byte(9) {
					c.Questions = append(c.Questions, question(do))
				}
				r := mustRun(t, c)
				want := Result{Sent: 9 * each, Answered: 4 * each, Lost: 5 * each, Duplicate: each}
				if r.Sent != want.Sent || r.Answered != want.Answered || r.Lost != want.Lost || r.Duplicate != want.Duplicate {
					t.Errorf("got %+v, want %+v", r, want)
				}
				// Of the late answers some may come after the end.
				if r.Stray < 3*each || r.Stray > 4*each {
					t.Errorf("%d stray answers, want %d to %d", r.Stray, 3*each, 4*each)
				}
				if r.Rcodes[0] != 3*each || r.Rcodes[2] != each || len(r.Rcodes) != 2 {
					t.Errorf("rcodes %v", r.Rcodes)
				}
				if got := e.asked.Load(); got != r.Sent {
					t.Errorf("%d sent, %d were asked", r.Sent, got)
				}
				if r.Latency.Max() < int64(delay)/1000*999 {
					t.Errorf("the longest latency is %v, want %v and more", time.Duration(r.Latency.Max()), delay)
				}
			})
		})
	}
}

// TestLateAnswerIsStray: an answer after the time-out does not become one in time.
func TestLateAnswerIsStray(t *testing.T) {
	e := newEcho(t, "127.0.0.1")
	// The last query keeps us listening while the late answers come.
	r := mustRun(t, Config{Target: e.addr, Rate: 10, Count: 12, Timeout: 4 * delay, Questions: [][]byte{question(doLate)}})
	if r.Answered != 0 || r.Lost != 12 || r.Stray == 0 {
		t.Errorf("%+v, want no answer in time and some too late", r)
	}
}

// TestOpenLoopCountsFromDue: a server that stands still makes all later queries late, also those that
// a client which waits for answers would not have sent.
func TestOpenLoopCountsFromDue(t *testing.T) {
	e := newEcho(t, "127.0.0.1")
	// The generator itself stands still at one question.
	c := Config{Target: e.addr, Rate: 1000, Count: 200, Timeout: 5 * time.Second}
	c.Question = func(n uint64, b []byte) []byte {
		if n == 50 {
			time.Sleep(delay)
		}
		return append(b, question(doAnswer)...)
	}
	r := mustRun(t, c)
	if r.Late < 50 || r.Latency.ValueAtQuantile(99) < int64(delay/2) {
		t.Errorf("%d of %d late, 99%% within %v, but the generator stood still for %v", r.Late, r.Sent, time.Duration(r.Latency.ValueAtQuantile(99)), delay)
	}
}

func TestClosedLoopIsBounded(t *testing.T) {
	e := newEcho(t, "127.0.0.1")
	begin := time.Now()
	// Nothing is answered, so each socket sends 7 in a time-out.
	r := mustRun(t, Config{Target: e.addr, Sockets: 2, Outstanding: 7, Duration: delay * 3 / 2, Timeout: delay, Questions: [][]byte{question(doDrop)}})
	// On a machine that stands still it may be fewer.
	if rounds := uint64(time.Since(begin)/delay) + 1; r.Sent < 14 || r.Sent > 14*rounds {
		t.Errorf("%d sent by 2 sockets with 7 outstanding in %d time-outs", r.Sent, rounds)
	}
}

// TestIDsRunThrough: an ID comes again only after all others, and one that is unanswered not at all
// before its time-out.
func TestIDsRunThrough(t *testing.T) {
	e := newEcho(t, "127.0.0.1")
	c := Config{Target: e.addr, Outstanding: 100, Count: numIDs, Timeout: 20 * time.Second, Questions: [][]byte{question(doAnswer)}}
	if r := mustRun(t, c); r.Answered != numIDs {
		t.Fatalf("%d of %d answered", r.Answered, numIDs)
	}
	e.mu.Lock()
	for from, ids := range e.last {
		if len(ids) != numIDs {
			t.Errorf("%d IDs from %s, want %d", len(ids), from, numIDs)
		}
	}
	e.mu.Unlock()
	// Two wait for their answers while the others are used up.
	c.Count, c.Timeout = numIDs+500, time.Minute
	c.Question = func(n uint64, b []byte) []byte {
		if n == 3 || n == 5 {
			return append(b, question(doDrop)...)
		}
		return append(b, question(doAnswer)...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		for e.asked.Load() < 2*numIDs+500 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(delay)
		cancel()
	}()
	r, err := Run(ctx, c)
	if !errors.Is(err, context.Canceled) || r.Sent != c.Count || r.Lost != 2 || r.Duplicate+r.Stray != 0 {
		t.Errorf("%+v, %v: want all but 2 of %d answered, once", r, err, c.Count)
	}
}

func TestDurationAndContextEnd(t *testing.T) {
	e := newEcho(t, "127.0.0.1")
	loops(t, func(t *testing.T, c Config) {
		c.Target, c.Questions = e.addr, [][]byte{question(doAnswer)}
		c.Duration = delay
		if r := mustRun(t, c); r.Elapsed < delay || r.Sent == 0 || r.Lost != 0 {
			t.Errorf("%+v, want an end after %v and no loss", r, delay)
		}
		c.Duration = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), delay)
		defer cancel()
		if r, err := Run(ctx, c); !errors.Is(err, context.DeadlineExceeded) || r.Sent == 0 {
			t.Errorf("%+v, %v, want the deadline's error", r, err)
		}
	})
}

// TestNobodyListens: ICMP errors are losses, not the end.
func TestNobodyListens(t *testing.T) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	addr := c.LocalAddr().(*net.UDPAddr).AddrPort()
	c.Close()
	r := mustRun(t, Config{Target: addr, Rate: 2000, Count: 300, Timeout: delay, Questions: [][]byte{question(doAnswer)}})
	if r.Sent != 300 || r.Lost != 300 {
		t.Errorf("%+v, want 300 lost", r)
	}
}

func TestConfigsThatCanNotRun(t *testing.T) {
	good := Config{Target: netip.MustParseAddrPort("127.0.0.1:9"), Rate: 1, Count: 1, Questions: [][]byte{question(doDrop)}}
	for name, change := range map[string]func(*Config){
		"no end":               func(c *Config) { c.Count = 0 },
		"no questions":         func(c *Config) { c.Questions = nil },
		"no rate":              func(c *Config) { c.Rate = 0 },
		"a negative rate":      func(c *Config) { c.Rate = -1 },
		"IDs used again":       func(c *Config) { c.Rate = 100000 },
		"too many outstanding": func(c *Config) { c.Outstanding = numIDs },
	} {
		c := good
		change(&c)
		if _, err := Run(t.Context(), c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestShortMessages: what is no DNS message can be sent too.
func TestShortMessages(t *testing.T) {
	e := newEcho(t, "127.0.0.1")
	r := mustRun(t, Config{Target: e.addr, Rate: 5000, Count: 40, Timeout: delay, Questions: [][]byte{{}, {1}, {1, 2}, question(doAnswer)}})
	if r.Answered != 10 || e.asked.Load() != 40 {
		t.Errorf("%d datagrams arrive and %d are answered, want 40 and 10", e.asked.Load(), r.Answered)
	}
}
