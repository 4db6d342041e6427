package fastudp

import (
	"bytes"
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	cproxyproto "github.com/coredns/coredns/plugin/pkg/proxyproto"
	"github.com/miekg/dns"
)

// stockTest is a stockConn whose answers go to a fake socket.
type stockTest struct {
	*stockConn
	engine *engine
	mu     sync.Mutex
	sent   []int
}

func newStockTest(t *testing.T, limit int) *stockTest {
	s := &stockTest{stockConn: newStockConn(testLocal, limit, 1)}
	f := newFakeIO(t, 1)
	f.sent = func(id int) {
		s.mu.Lock()
		s.sent = append(s.sent, id)
		s.mu.Unlock()
	}
	s.engine = &engine{io: f, count: new(counters)}
	s.engine.out = newSendQueue(f, s.engine.count, 1)
	return s
}

func (s *stockTest) giveID(id int) bool {
	return s.give(s.engine, appendTestQuery(nil, id, 0), testPeer(id), nil)
}

// read reads one message and returns its number and the address that answers it.
func (s *stockTest) read(t *testing.T) (int, net.Addr) {
	t.Helper()
	b := make([]byte, dns.MinMsgSize)
	n, addr, err := s.ReadFrom(b)
	if err != nil {
		t.Fatal(err)
	}
	id, _, ok := readTestQuery(b[:n])
	if !ok || addr.String() != testPeer(id).addr.String() {
		t.Fatalf("read %x from %v", b[:n], addr)
	}
	return id, addr
}

func (s *stockTest) answer(t *testing.T, id int, addr net.Addr) {
	t.Helper()
	b := appendTestQuery(nil, id, 0)
	if n, err := s.WriteTo(b, addr); n != len(b) || err != nil {
		t.Fatalf("WriteTo: %d, %v", n, err)
	}
}

func (s *stockTest) sessionsNow() (open, all int) {
	s.stockConn.mu.Lock()
	defer s.stockConn.mu.Unlock()
	return s.open.total, len(s.sessions)
}

// collectUntil runs the collector until its clean-ups have done what they shall.
func collectUntil(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(stuckLimit); !done(); runtime.GC() {
		if time.Now().After(end) {
			t.Fatal("the collector frees nothing")
		}
	}
}

// TestStockBounds fills the queue, then the number of unanswered messages.
func TestStockBounds(t *testing.T) {
	s := newStockTest(t, stockQueue+10)
	for id := range stockQueue {
		if !s.giveID(id) {
			t.Fatalf("message %d refused", id)
		}
	}
	for range 20 {
		if s.giveID(9999) {
			t.Fatal("a message more than the queue holds")
		}
	}
	if open, all := s.sessionsNow(); open != stockQueue || all != stockQueue {
		t.Fatalf("%d sessions open, %d in all", open, all)
	}
	// The stock server reads all and answers none: ten more fit.
	var addrs []net.Addr
	for id := range stockQueue {
		got, addr := s.read(t)
		if got != id {
			t.Fatalf("message %d instead of %d", got, id)
		}
		addrs = append(addrs, addr)
	}
	for id := stockQueue; id < stockQueue+10; id++ {
		if !s.giveID(id) {
			t.Fatalf("message %d refused", id)
		}
	}
	for range 20 {
		if s.giveID(9999) {
			t.Fatal("a message beyond the limit")
		}
	}
	// Each answer makes room for one.
	for id, a := range addrs[:5] {
		s.answer(t, id, a)
		if !s.giveID(1000 + id) {
			t.Fatal("no room after an answer")
		}
		if s.giveID(9999) {
			t.Fatal("an answer made room for two")
		}
	}
	runtime.KeepAlive(addrs)
}

// TestStockDefaultLimit has no more messages unanswered than the default bound when max_inflight is 0.
func TestStockDefaultLimit(t *testing.T) {
	if c := newStockConn(testLocal, 0, 1); c.limit != defaultMaxInflight {
		t.Errorf("the limit is %d", c.limit)
	}
}

// TestStockAnswer sends answers out of the engine that got the query, to its client, in as many
// messages as the stock server likes; they make room once.
func TestStockAnswer(t *testing.T) {
	s := newStockTest(t, 10)
	for id := range 3 {
		s.giveID(id)
	}
	var addrs []net.Addr
	for range 3 {
		_, addr := s.read(t)
		if _, ok := addr.(*net.UDPAddr); !ok {
			t.Fatalf("plugins get a %T", addr)
		}
		addrs = append(addrs, addr)
	}
	for _, id := range []int{2, 0, 0, 0, 1} {
		s.answer(t, id, addrs[id])
	}
	if open, _ := s.sessionsNow(); open != 0 {
		t.Errorf("%d sessions open after answers to all", open)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sent) != 5 || s.sent[0] != 2 || s.sent[1] != 0 || s.sent[2] != 0 || s.sent[3] != 0 || s.sent[4] != 1 {
		t.Errorf("answers sent: %v", s.sent)
	}
	runtime.KeepAlive(addrs)
}

// TestStockEngines sends each answer by the socket of its query, though the clients' addresses are equal.
func TestStockEngines(t *testing.T) {
	a, b := newStockTest(t, 10), newStockTest(t, 10)
	b.stockConn = a.stockConn
	for range 5 {
		a.giveID(1)
		b.giveID(1)
	}
	for range 10 {
		id, addr := a.read(t)
		a.answer(t, id, addr)
	}
	if len(a.sent) != 5 || len(b.sent) != 5 {
		t.Errorf("%d and %d answers", len(a.sent), len(b.sent))
	}
}

// TestStockForeign writes to addresses that are nobody's query, equal ones and nil included.
func TestStockForeign(t *testing.T) {
	s := newStockTest(t, 10)
	s.giveID(1)
	_, addr := s.read(t)
	same := *addr.(*net.UDPAddr)
	for _, a := range []net.Addr{&same, &net.UDPAddr{}, &net.TCPAddr{}, (*net.UDPAddr)(nil), nil} {
		if n, err := s.WriteTo([]byte("x"), a); n != 0 || err == nil {
			t.Errorf("WriteTo(%v): %d, %v", a, n, err)
		}
	}
	if open, _ := s.sessionsNow(); open != 1 || len(s.sent) != 0 {
		t.Errorf("%d sessions open, %d answers sent", open, len(s.sent))
	}
	runtime.KeepAlive(addr)
}

// TestStockForgets frees the places of messages that the stock server never answers once nobody
// holds their address, and the memory of those that were answered; not a moment before.
func TestStockForgets(t *testing.T) {
	s := newStockTest(t, 100)
	var kept []net.Addr
	for id := range 100 {
		if !s.giveID(id) {
			t.Fatalf("message %d refused", id)
		}
		_, addr := s.read(t)
		if id%10 == 0 {
			kept = append(kept, addr)
		}
		if id%2 == 1 {
			s.answer(t, id, addr)
		}
	}
	if open, all := s.sessionsNow(); open != 50 || all < 10 {
		t.Fatalf("%d sessions open, %d in all", open, all)
	}
	collectUntil(t, func() bool {
		open, all := s.sessionsNow()
		if open < len(kept) || all < len(kept) {
			t.Fatalf("%d sessions open, %d in all, while %d are held", open, all, len(kept))
		}
		return open == len(kept) && all == len(kept)
	})
	for i, a := range kept {
		s.answer(t, 10*i, a)
	}
	kept = nil
	collectUntil(t, func() bool { _, all := s.sessionsNow(); return all == 0 })
	if open, _ := s.sessionsNow(); open != 0 {
		t.Errorf("%d sessions open", open)
	}
}

// TestStockData hands the message over as a copy, of no more than stock reads.
func TestStockData(t *testing.T) {
	s := newStockTest(t, 10)
	data := bytes.Repeat([]byte{7}, 2000)
	s.give(s.engine, data, testPeer(1), nil)
	clear(data)
	b := make([]byte, 4000)
	n, _, err := s.ReadFrom(b)
	if err != nil || !bytes.Equal(b[:n], bytes.Repeat([]byte{7}, dns.MinMsgSize)) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestStockProxied gives the stock server the address that a PROXY header named, and answers to who sent it.
func TestStockProxied(t *testing.T) {
	s := newStockTest(t, 10)
	client := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4711}
	from := net.UDPAddrFromAddrPort(testPeer(5).addr)
	s.give(s.engine, appendTestQuery(nil, 5, 0), testPeer(5), &proxied{cproxyproto.NewAddr(from, client, nil), from})
	b := make([]byte, 512)
	_, addr, err := s.ReadFrom(b)
	if err != nil || addr.String() != client.String() {
		t.Fatalf("read from %v, %v", addr, err)
	}
	s.answer(t, 5, addr)
	if len(s.sent) != 1 || s.sent[0] != 5 {
		t.Errorf("answers sent: %v", s.sent)
	}
	if open, _ := s.sessionsNow(); open != 0 {
		t.Errorf("%d sessions open", open)
	}
}

// TestStockDeadline ends ReadFrom with a deadline in the past and with Close, but not with the one in
// the future that the stock server sets before each read.
func TestStockDeadline(t *testing.T) {
	ends := map[string]func(*stockTest){
		"SetReadDeadline": func(s *stockTest) { s.SetReadDeadline(time.Unix(1, 0)) },
		"SetDeadline":     func(s *stockTest) { s.SetDeadline(time.Unix(1, 0)) },
		"Close":           func(s *stockTest) { s.Close() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			s := newStockTest(t, 10)
			s.SetReadDeadline(time.Now().Add(time.Hour))
			s.SetReadDeadline(time.Time{})
			s.SetReadDeadline(time.Now().Add(-time.Minute)) // the machine stood still after it was computed
			s.giveID(1)
			s.read(t)
			ended := make(chan error)
			go func() {
				_, _, err := s.ReadFrom(make([]byte, 512))
				ended <- err
			}()
			end(s)
			err := <-ended
			var ne net.Error
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
				t.Errorf("ReadFrom ended with %v", err)
			}
			end(s) // once more does no harm
		})
	}
}

// TestStockReady tells when the stock server reads.
func TestStockReady(t *testing.T) {
	s := newStockTest(t, 10)
	select {
	case <-s.ready:
		t.Fatal("ready before anybody reads")
	default:
	}
	go s.ReadFrom(make([]byte, 512))
	<-s.ready
	s.Close()
}

// TestStockDrain waits until the queue has been read, or for the limit.
func TestStockDrain(t *testing.T) {
	s := newStockTest(t, 100)
	s.drain(time.Now().Add(time.Hour)) // nothing to wait for
	for id := range 50 {
		s.giveID(id)
	}
	began := time.Now()
	s.drain(time.Now().Add(20 * time.Millisecond))
	if d := time.Since(began); d < 20*time.Millisecond {
		t.Errorf("drain gave up after %v", d)
	}
	drained := make(chan struct{})
	go func() {
		s.drain(time.Now().Add(time.Hour))
		close(drained)
	}()
	for range 49 {
		s.read(t)
	}
	select {
	case <-drained:
		t.Error("drained with a message in the queue")
	default:
	}
	s.read(t)
	<-drained
}

// TestStockConcurrent has engines give, stock read and answer, and the collector run, all at once.
func TestStockConcurrent(t *testing.T) {
	const givers, each = 4, 1000
	s := newStockTest(t, 50)
	var given, answered sync.WaitGroup
	var mu sync.Mutex
	accepted := 0
	for g := range givers {
		given.Go(func() {
			for i := range each {
				if s.giveID(g*each + i) {
					mu.Lock()
					accepted++
					mu.Unlock()
				}
				runtime.Gosched()
			}
		})
	}
	replied := 0
	for range 2 {
		answered.Go(func() {
			b := make([]byte, 512)
			for {
				n, addr, err := s.ReadFrom(b)
				if err != nil {
					return
				}
				id, _, _ := readTestQuery(b[:n])
				if id%3 == 0 {
					continue // forgotten
				}
				if _, err := s.WriteTo(b[:n], addr); err != nil {
					t.Errorf("answer to %d: %v", id, err)
				}
				mu.Lock()
				replied++
				mu.Unlock()
			}
		})
	}
	given.Wait()
	s.drain(time.Now().Add(stuckLimit))
	s.Close()
	answered.Wait()
	if accepted == 0 || len(s.sent) != replied {
		t.Errorf("%d accepted, %d replied, %d sent", accepted, replied, len(s.sent))
	}
	collectUntil(t, func() bool { open, all := s.sessionsNow(); return open == 0 && all == 0 })
}

// TestStockForgetsInTime has as many messages as may be open never be answered, with their addresses
// kept: after a while they count no more, without the help of the collector.
func TestStockForgetsInTime(t *testing.T) {
	const limit = 10
	s := newStockTest(t, limit)
	now := time.Now()
	s.open.clock = func() time.Time { return now }
	kept := make(map[int]net.Addr)
	for round := range 3 {
		for i := range limit {
			if !s.giveID(round*limit + i) {
				t.Fatalf("round %d: message %d is refused", round, i)
			}
			id, addr := s.read(t)
			kept[id] = addr
		}
		if s.giveID(999) {
			t.Fatal("there is room beyond the limit")
		}
		now = now.Add((recentSeconds - 1) * time.Second)
		if s.giveID(999) {
			t.Fatal("messages are forgotten too early")
		}
		now = now.Add(time.Second)
	}
	// An answer after all takes back nothing that is forgotten already.
	for id, addr := range kept {
		s.answer(t, id, addr)
	}
	if open, _ := s.sessionsNow(); open != 0 {
		t.Errorf("%d sessions are open", open)
	}
}
