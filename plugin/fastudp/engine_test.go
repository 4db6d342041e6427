package fastudp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const (
	// schedulesEnv is how many random schedules TestSchedules runs instead of defaultSchedules.
	schedulesEnv     = "FASTUDP_SCHEDULES"
	defaultSchedules = 1800
	// seedEnv runs the one schedule of a seed that a failure named, over and over.
	seedEnv = "FASTUDP_SEED"
	// stuckLimit is how long a schedule of a few milliseconds may take before it counts as stuck.
	stuckLimit = 30 * time.Second
)

// TestSchedules drives the claim and the flush protocol through random schedules and checks in each
// that every message is handled once, every response sent once, and nothing waits for anything but
// what it must wait for.
func TestSchedules(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	n, base, step := defaultSchedules, rand.Uint64(), uint64(1)
	if s := os.Getenv(schedulesEnv); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	if s := os.Getenv(seedEnv); s != "" {
		var err error
		if base, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
		step = 0
	}
	// Changing GOMAXPROCS stops the world, so schedules with the same number go together.
	for i, procs := range []int{1, 2, 4} {
		runtime.GOMAXPROCS(procs)
		for j := range n / 3 {
			seed := base + step*uint64(i*n/3+j)
			runSchedule(t, seed, procs)
			if t.Failed() {
				t.Fatalf("failed with %s=%d, GOMAXPROCS=%d", seedEnv, seed, procs)
			}
		}
	}
	noEngineGoroutines(t)
}

// act is what the handler of one message does.
type act struct {
	kind   actKind
	yields int           // before it answers
	sleep  time.Duration // before it answers
	slow   bool          // yields before it lets go of the packet
}

type actKind int

const (
	actAnswer actKind = iota
	actLate           // answers from another goroutine, when the handler has long returned perhaps
	actTwice
	actNever
	actPanic      // without an answer
	actPanicAfter // its answer
	actGate       // answers when all that need not wait has been answered
	numActs
)

func (k actKind) writes() int {
	return [numActs]int{actAnswer: 1, actLate: 1, actTwice: 2, actPanicAfter: 1, actGate: 1}[k]
}

// schedule is one run of an engine: random parameters, random acts, and what has come of them.
type schedule struct {
	t      testing.TB
	fake   *fakeIO
	engine *engine
	acts   []act
	most   int // of handlers at once, 0 is no bound
	real   *listener

	running atomic.Int64
	late    sync.WaitGroup

	mu       sync.Mutex
	change   sync.Cond
	stuck    bool
	gate     chan struct{}
	state    []byte // by message: 0, 'h'andled, 'd'ropped
	sent     []int  // responses, by message
	settled  int    // messages handled or dropped
	dropped  int
	due      int // responses owed
	waiting  int // of them, those that wait for the gate
	answered int // responses sent
}

func runSchedule(t *testing.T, seed uint64, procs int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	pick := func(vs ...int) int { return vs[rng.IntN(len(vs))] }
	batch := pick(1, 1, 2, 3, 8, 64, 1+rng.IntN(64))
	fairness := pick(1, 2, 7, 64, 256)
	s := &schedule{t: t, fake: newFakeIO(t, batch), gate: make(chan struct{})}
	s.change.L = &s.mu
	f := s.fake
	f.cap = fairness
	f.sent = s.onSent

	// Its own generators for what runs under its own lock or by one goroutine at a time.
	rxRng, txRng := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	switch pick(0, 1, 2) {
	case 0: // as many as there are
	case 1:
		f.chunk = func(int) int { return 1 }
	case 2:
		f.chunk = func(most int) int { return 1 + rxRng.IntN(most) }
	}
	faults := 0
	if pick(0, 0, 0, 1) == 1 {
		f.fault = func() error {
			if rxRng.IntN(8) == 0 {
				faults++
				return fmt.Errorf("receive: %w", syscall.ENETDOWN)
			}
			return nil
		}
	}
	if slow := pick(0, 0, 2, 20); slow > 0 {
		f.stall = func(int) {
			if txRng.IntN(slow) != 0 {
				return
			}
			if txRng.IntN(4) == 0 {
				time.Sleep(time.Duration(txRng.IntN(100)) * time.Microsecond)
				return
			}
			for range txRng.IntN(20) {
				runtime.Gosched()
			}
		}
	}

	rounds := 1 + rng.IntN(4)
	var sizes []int
	total := 0
	for range rounds {
		n := pick(1, 1, 2, 5, batch, 1+rng.IntN(3*batch), 1+rng.IntN(64))
		sizes = append(sizes, n)
		total += n
	}
	// A schedule has a character: all alike, or a mixture.
	alike := actKind(-1)
	if k := rng.IntN(3 * int(numActs)); k < int(numActs) {
		alike = actKind(k)
	}
	restless := pick(0, 3, 30) // per cent of the handlers that sleep
	for range total {
		a := act{kind: alike, slow: rng.IntN(10) == 0}
		if alike < 0 {
			a.kind = actKind(rng.IntN(int(numActs)))
		}
		switch k := rng.IntN(100); {
		case k < restless:
			a.sleep = time.Duration(rng.IntN(60)) * time.Microsecond
		case k < 60:
			a.yields = rng.IntN(4)
		}
		s.acts = append(s.acts, a)
	}
	s.state, s.sent = make([]byte, total), make([]int, total)

	s.most = pick(0, 0, 1, 2, 1+rng.IntN(20))
	budget := newBudget(s.most, 1+rng.IntN(2))
	packets := newPackets(batch)
	o := Options{Batch: batch, FairnessCap: fairness}
	serve := s.serve
	if f.trackUse = pick(0, 1) == 1; !f.trackUse {
		s.real = &listener{handler: s, ctx: context.Background(), local: testLocal}
		serve = s.serveReal
	}
	e := newEngine(f, o, budget, packets, new(counters), serve)
	s.engine = e
	e.arrivals.left = pick(0, gatherRun)

	watch := time.AfterFunc(stuckLimit, func() {
		s.mu.Lock()
		s.stuck = true
		s.change.Broadcast()
		s.mu.Unlock()
	})
	defer watch.Stop()

	e.start()
	next := 0
	stopEarly, shared := pick(0, 0, 1) == 1, pick(0, 1) == 1
	for r, n := range sizes {
		feed(f, rng, next, n)
		next += n
		if stopEarly && r == rounds-1 {
			break
		}
		s.finishRound(next)
	}

	if stopEarly {
		// In the middle of the last round.
		after := next - sizes[rounds-1] + rng.IntN(sizes[rounds-1]+1)
		s.wait("part of the last round", func() bool { return s.settled >= after })
	}
	limit := time.Hour
	if shared {
		limit = 0 // what is left is the other reader's
	}
	e.stopReading(limit)
	s.await("the last reader", e.readDone)
	e.dismiss()
	fed := next - f.queued()
	if !shared && fed != next {
		f.fail("%d of %d messages that had arrived before the stop were never read", next-fed, next)
	}
	s.finishRound(fed)
	s.await("the last worker", e.done)
	s.late.Wait()
	e.out.close()
	f.close()
	s.check(fed, faults)
}

// feed has n messages arrive in bursts, and lets the engine run in between.
func feed(f *fakeIO, rng *rand.Rand, first, n int) {
	for n > 0 {
		k := 1 + rng.IntN(n)
		ids := make([]int, k)
		for i := range ids {
			ids[i] = first + i
		}
		f.arrive(ids...)
		first += k
		n -= k
		for range rng.IntN(3) {
			runtime.Gosched()
		}
	}
}

// serve is listener.query without the DNS, so that the test knows when the packet is let go.
func (s *schedule) serve(e *engine, p *packet) {
	id, slot, ok := readTestQuery(p.data)
	from := p.peer
	if !ok {
		s.fake.fail("a claimed packet holds no message: %x", p.data[:min(len(p.data), testQuery)])
		e.took()
		return
	}
	if s.acts[id].slow {
		runtime.Gosched()
	}
	at := e.admit()
	if at == nowhere {
		e.count.drops[dropInflight].Add(1)
	}
	s.fake.inUse[slot].Store(false)
	e.took()
	if at == nowhere {
		s.settle(id, 'd')
		return
	}
	s.handle(id, func() error {
		r := newReply()
		r.buf = appendTestQuery(r.buf[:0], id, slot)
		r.peer = from
		return e.out.add(r)
	})
	e.release(at)
}

// serveReal has listener.serve do it all.
func (s *schedule) serveReal(e *engine, p *packet) {
	id, _, ok := readTestQuery(p.data)
	if !ok {
		s.fake.fail("a claimed packet holds no message: %x", p.data[:min(len(p.data), testQuery)])
		e.took()
		return
	}
	s.real.serve(e, p)
	s.mu.Lock()
	seen := s.state[id] != 0
	s.mu.Unlock()
	if !seen {
		s.settle(id, 'd')
	}
}

// ServeDNS implements handler.
func (s *schedule) ServeDNS(_ context.Context, w dns.ResponseWriter, r *dns.Msg) {
	id, _, ok := readTestName([]byte(r.Question[0].Name)[:testLabel])
	if !ok {
		s.fake.fail("the handler got a message that nobody sent: %v", r)
		return
	}
	m := new(dns.Msg)
	m.SetReply(r)
	s.handle(id, func() error { return w.WriteMsg(m) })
}

func (s *schedule) handle(id int, write func() error) {
	if n := s.running.Add(1); s.most > 0 && n > int64(s.most) {
		s.fake.fail("%d handlers at once, the bound is %d", n, s.most)
	}
	defer s.running.Add(-1)
	defer func() { recover() }() // as dnsserver.Server.ServeDNS does
	gate := s.settle(id, 'h')
	a := s.acts[id]
	answer := func() {
		for range a.yields {
			runtime.Gosched()
		}
		if a.sleep > 0 {
			time.Sleep(a.sleep)
		}
		if err := write(); err != nil {
			s.fake.fail("the answer to message %d: %v", id, err)
		}
	}
	switch a.kind {
	case actAnswer:
		answer()
	case actLate:
		s.late.Go(answer)
	case actTwice:
		answer()
		answer()
	case actPanic:
		panic(errors.New("no answer"))
	case actPanicAfter:
		answer()
		panic(errors.New("after the answer"))
	case actGate:
		<-gate
		answer()
	}
}

// settle notes what became of a message.
func (s *schedule) settle(id int, how byte) (gate chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state[id] != 0 {
		s.fake.fail("message %d is served twice", id)
	}
	s.state[id] = how
	s.settled++
	if how == 'd' {
		s.dropped++
	} else {
		s.due += s.acts[id].kind.writes()
		if s.acts[id].kind == actGate {
			s.waiting++
		}
	}
	s.change.Broadcast()
	return s.gate
}

func (s *schedule) onSent(id int) {
	s.mu.Lock()
	s.sent[id]++
	s.answered++
	s.change.Broadcast()
	s.mu.Unlock()
}

// finishRound waits for all that does not hang on the gate, opens it and waits for the rest. No
// further message arrives meanwhile: an answer that needs one to be sent is never seen.
func (s *schedule) finishRound(fed int) {
	s.wait("all messages but those at the gate", func() bool {
		return s.settled == fed && s.answered == s.due-s.waiting
	})
	s.mu.Lock()
	close(s.gate)
	s.gate = make(chan struct{})
	s.waiting = 0
	s.mu.Unlock()
	s.wait("the messages at the gate", func() bool { return s.answered == s.due })
}

func (s *schedule) wait(what string, done func() bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !done() {
		if s.stuck {
			s.dump(what)
		}
		s.change.Wait()
	}
}

func (s *schedule) await(what string, c chan struct{}) {
	s.t.Helper()
	done := false
	go func() {
		<-c
		s.mu.Lock()
		done = true
		s.change.Broadcast()
		s.mu.Unlock()
	}()
	s.wait(what, func() bool { return done })
}

func (s *schedule) dump(what string) {
	s.t.Helper()
	s.t.Errorf("stuck waiting for %s: %d settled, %d of %d responses sent, %d wait for the gate", what, s.settled, s.answered, s.due, s.waiting)
	s.t.Fatalf("goroutines:\n%s", goroutines())
}

// check looks at the books when all is over.
func (s *schedule) check(fed, faults int) {
	e := s.engine
	for id := range fed {
		want := 0
		if s.state[id] == 'h' {
			want = s.acts[id].kind.writes()
		}
		if s.state[id] == 0 || s.sent[id] != want {
			s.fake.fail("message %d: state %q, %d responses, want %d", id, s.state[id], s.sent[id], want)
		}
	}
	if s.settled != fed || s.answered != s.due {
		s.fake.fail("%d messages settled of %d, %d responses of %d", s.settled, fed, s.answered, s.due)
	}
	if n := e.count.received.Load(); n != uint64(fed) {
		s.fake.fail("%d messages counted, %d received", n, fed)
	}
	if n := e.count.drops[dropInflight].Load(); n != uint64(s.dropped) || (s.most == 0 && n > 0) {
		s.fake.fail("%d drops counted, %d messages dropped, bound %d", n, s.dropped, s.most)
	}
	if n := e.count.recvErrs["ENETDOWN"]; n != uint64(faults) || (faults > 0 && len(e.count.recvErrs) != 1) {
		s.fake.fail("receive errors counted: %v, want ENETDOWN %d times", e.count.recvErrs, faults)
	}
	if n := e.inflight(); n != 0 {
		s.fake.fail("%d queries still count as in handlers", n)
	}
	if e.budget != nil && e.budget.taken.Load() != 0 {
		s.fake.fail("%d queries of the common budget were never given back", e.budget.taken.Load())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.workers != 0 || len(e.idle) != 0 {
		s.fake.fail("%d workers left, %d idle", e.workers, len(e.idle))
	}
	if e.trim != nil && e.trim.Stop() {
		s.fake.fail("the timer for idle workers still runs")
	}
}

// awaitStop waits until an engine whose socket ends by itself has stopped.
func awaitStop(t *testing.T, e *engine) {
	t.Helper()
	for _, c := range []chan struct{}{e.readDone, e.done} {
		select {
		case <-c:
		case <-time.After(stuckLimit):
			t.Fatalf("stuck\n%s", goroutines())
		}
		if c == e.readDone {
			e.dismiss()
		}
	}
}

func goroutines() string {
	for n := 1 << 20; ; n *= 2 {
		b := make([]byte, n)
		if k := runtime.Stack(b, true); k < n {
			return string(b[:k])
		}
	}
}

// noEngineGoroutines fails if a goroutine of an engine is left; one that has said good-bye may need
// a moment to end.
func noEngineGoroutines(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(stuckLimit); ; runtime.Gosched() {
		all := goroutines()
		if !strings.Contains(all, "fastudp.(*engine).work") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("goroutines left:\n%s", all)
		}
	}
}
