package fastudp

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// blockable is a handler that blocks on the messages it is told to, the way a plugin waits for an
// upstream, and a log of the answers that went out.
type blockable struct {
	mu       sync.Mutex
	blocks   func(id int) bool
	blocked  map[int]chan struct{}
	answered map[int]int
}

func newBlockable(blocks func(id int) bool) *blockable {
	return &blockable{blocks: blocks, blocked: make(map[int]chan struct{}), answered: make(map[int]int)}
}

func (b *blockable) ServeDNS(_ context.Context, w dns.ResponseWriter, r *dns.Msg) {
	id, _, _ := readTestName([]byte(r.Question[0].Name)[:testLabel])
	b.mu.Lock()
	var c chan struct{}
	if b.blocks(id) {
		c = make(chan struct{})
		b.blocked[id] = c
	}
	b.mu.Unlock()
	if c != nil {
		<-c
	}
	m := new(dns.Msg)
	m.SetReply(r)
	w.WriteMsg(m)
}

func (b *blockable) sent(id int) {
	b.mu.Lock()
	b.answered[id]++
	b.mu.Unlock()
}

// release lets all blocked handlers go on, 1000 at a time: the send queue need not take more at once.
func (b *blockable) release() {
	for left := 1; left > 0; {
		b.mu.Lock()
		n := 0
		for id, c := range b.blocked {
			close(c)
			delete(b.blocked, id)
			if n++; n == 1000 {
				break
			}
		}
		left = len(b.blocked)
		b.mu.Unlock()
		synctest.Wait()
	}
}

// want checks, when nothing moves any more, that exactly the messages below n that do not block have
// been answered, or all of them.
func (b *blockable) want(t *testing.T, n int, all bool) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := range n {
		want := 1
		if !all && b.blocks(id) {
			want = 0
		}
		if b.answered[id] != want {
			t.Fatalf("message %d of %d: %d answers, want %d; %d handlers are blocked", id, n, b.answered[id], want, len(b.blocked))
		}
	}
}

// blockedEngine serves the handler b through the real listener from a fake socket, in a bubble.
func blockedEngine(t *testing.T, b *blockable, batch, inflight int) (*engine, *fakeIO) {
	f := newFakeIO(t, batch)
	f.sent = b.sent
	f.cap = defaultFairnessCap
	packets := newPackets(batch)
	l := &listener{handler: b, ctx: context.Background(), local: testLocal}
	e := newEngine(f, Options{Batch: batch, FairnessCap: defaultFairnessCap}, newBudget(inflight, 1), packets, new(counters), l.serve)
	e.start()
	synctest.Wait()
	t.Cleanup(func() {
		b.mu.Lock()
		b.blocks = func(int) bool { return false }
		b.mu.Unlock()
		b.release()
		if !e.stopping.Load() {
			stopEngine(e)
		}
	})
	return e, f
}

// stopEngine stops e and waits for its last worker: in a bubble a goroutine that is left is an error.
func stopEngine(e *engine) {
	e.stopReading(time.Hour)
	<-e.readDone
	e.dismiss()
	<-e.done
}

func numbers(from, to int) []int {
	var ids []int
	for i := from; i < to; i++ {
		ids = append(ids, i)
	}
	return ids
}

// TestNeverBlocked blocks the handlers of some messages for good: all other messages, of the same
// batch and of later ones, are answered.
func TestNeverBlocked(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	one := func(k int) func(int) bool { return func(id int) bool { return id == k } }
	for _, procs := range []int{1, 2} {
		runtime.GOMAXPROCS(procs)
		for _, batch := range []int{1, 2, 64} {
			for name, blocks := range map[string]func(int) bool{
				"first of the batch":  one(0),
				"middle of the batch": one(batch / 2),
				"last of the batch":   one(batch - 1),
				"all but the last":    func(id int) bool { return id != 3*batch-1 },
				"every other":         func(id int) bool { return id%2 == 0 },
			} {
				t.Run(fmt.Sprintf("%s/batch %d/procs %d", name, batch, procs), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := newBlockable(blocks)
						_, f := blockedEngine(t, b, batch, 0)
						// One batch, then more of them at once, then datagrams one by one.
						f.arrive(numbers(0, batch)...)
						synctest.Wait()
						b.want(t, batch, false)
						f.arrive(numbers(batch, 4*batch)...)
						synctest.Wait()
						b.want(t, 4*batch, false)
						for id := 4 * batch; id < 4*batch+10; id++ {
							f.arrive(id)
							synctest.Wait()
							b.want(t, id+1, false)
						}
						// The answers of the blocked go out without another datagram.
						b.release()
						synctest.Wait()
						b.want(t, 4*batch+10, true)
					})
				})
			}
		}
	}
}

// TestThousandBlocked has 1000 handlers block at once between others that do not, then blocks as many
// again while the first thousand still wait.
func TestThousandBlocked(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2} {
		runtime.GOMAXPROCS(procs)
		for _, batch := range []int{1, 64} {
			t.Run(fmt.Sprintf("batch %d/procs %d", batch, procs), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBlockable(func(id int) bool { return id%2 == 0 })
					e, f := blockedEngine(t, b, batch, 0)
					for n := 2000; n <= 4000; n += 2000 {
						f.arrive(numbers(n-2000, n)...)
						synctest.Wait()
						b.want(t, n, false)
						if got := e.inflight(); got != int64(n/2) {
							t.Fatalf("%d queries in handlers, want %d", got, n/2)
						}
					}
					b.release()
					synctest.Wait()
					b.want(t, 4000, true)
				})
			})
		}
	}
}

// TestBlockedAtBound has handlers block up to max_inflight: what comes then is dropped and counted,
// and served again when one of them returns.
func TestBlockedAtBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 10
		b := newBlockable(func(id int) bool { return id < bound })
		e, f := blockedEngine(t, b, 64, bound)
		f.arrive(numbers(0, bound)...)
		synctest.Wait()
		f.arrive(numbers(bound, bound+100)...)
		synctest.Wait()
		b.want(t, bound, false)
		if n := len(b.answered); n != 0 {
			t.Fatalf("%d answers beyond the bound", n)
		}
		if n := e.count.drops[dropInflight].Load(); n != 100 {
			t.Fatalf("%d drops counted, want 100", n)
		}
		b.release()
		synctest.Wait()
		b.want(t, bound, true)
		for id := bound; id < bound+100; id += bound {
			f.arrive(numbers(id, id+bound)...)
			synctest.Wait()
		}
		b.want(t, bound+100, true)
	})
}

// TestIdleWorkers looks at the workers that a burst of blocked handlers leaves: they go, but for
// keepIdle and the reader, and those that stay serve the next burst without a new one.
func TestIdleWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlockable(func(int) bool { return true })
		e, f := blockedEngine(t, b, 64, 0)
		count := func() (workers, idle int, timer bool) {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.workers, len(e.idle), e.trim != nil
		}
		f.arrive(numbers(0, 1000)...)
		synctest.Wait()
		if w, _, _ := count(); w < 1001 {
			t.Fatalf("%d workers while 1000 handlers block and one reads", w)
		}
		b.release()
		synctest.Wait()
		b.want(t, 1000, true)

		workers, idle, timer := count()
		if idle < 999 || !timer {
			t.Fatalf("%d of %d workers are idle, timer %v", idle, workers, timer)
		}
		e.mu.Lock()
		youngest := slices.Clone(e.idle[idle-keepIdle:])
		e.mu.Unlock()
		// In the first period the number grew, in the second one none was needed.
		time.Sleep(2 * trimPeriod)
		synctest.Wait()
		if w, i, timer := count(); w != keepIdle+1 || i != keepIdle || timer {
			t.Fatalf("%d workers, %d idle, want %d and the reader; timer %v", w, i, keepIdle, timer)
		}
		for k, y := range youngest {
			if e.idle[k] != y {
				t.Fatalf("the worker at %d is not one of those that rested last", k)
			}
		}
		time.Sleep(10 * trimPeriod)
		synctest.Wait()
		if w, i, timer := count(); w != keepIdle+1 || i != keepIdle || timer {
			t.Fatalf("%d workers, %d idle, timer %v long after", w, i, timer)
		}

		spawned := e.count.spawned.Load()
		f.arrive(numbers(1000, 1000+keepIdle)...)
		synctest.Wait()
		b.release()
		synctest.Wait()
		b.want(t, 1000+keepIdle, true)
		if n := e.count.spawned.Load(); n > spawned+1 {
			t.Errorf("%d workers started while %d idled", n-spawned, keepIdle)
		}
	})
}

// TestIdleWorkersNeeded has bursts come all the time: the workers that they need stay.
func TestIdleWorkersNeeded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlockable(func(int) bool { return true })
		e, f := blockedEngine(t, b, 64, 0)
		burst := func(n int) {
			f.arrive(numbers(n*200, n*200+200)...)
			synctest.Wait()
			b.release()
			synctest.Wait()
		}
		burst(0)
		spawned := e.count.spawned.Load()
		for n := range 20 {
			time.Sleep(trimPeriod / 2)
			burst(n + 1)
		}
		if n := e.count.spawned.Load(); n > spawned+1 {
			t.Errorf("%d workers started while others idled", n-spawned)
		}
	})
}

// TestStopWithBlockedHandlers stops while handlers block: the reader ends at once, idle workers
// leave, and the last worker is gone when the last handler has returned and been answered.
func TestStopWithBlockedHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlockable(func(id int) bool { return id%3 == 0 })
		e, f := blockedEngine(t, b, 8, 0)
		f.arrive(numbers(0, 300)...)
		synctest.Wait()
		e.stopReading(time.Hour)
		<-e.readDone
		e.dismiss()
		synctest.Wait()
		b.want(t, 300, false)
		e.mu.Lock()
		workers := e.workers
		e.mu.Unlock()
		if workers != 100 {
			t.Errorf("%d workers, want one for each blocked handler", workers)
		}
		select {
		case <-e.done:
			t.Fatal("done while handlers run")
		default:
		}
		b.release()
		<-e.done
		b.want(t, 300, true)
	})
}

// TestTrimRace sends idle workers away all the time while bursts need them: whoever readies a worker
// and whoever sends one away never choose the same.
func TestTrimRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst = 3 * keepIdle
		b := newBlockable(func(int) bool { return true })
		e, f := blockedEngine(t, b, 16, 0)
		var over atomic.Bool
		var trims sync.WaitGroup
		trims.Go(func() {
			for !over.Load() {
				for range 20 {
					e.trimIdle()
					runtime.Gosched()
				}
				time.Sleep(time.Nanosecond)
			}
		})
		for r := range 10 {
			f.arrive(numbers(r*burst, (r+1)*burst)...)
			for left := burst; left > 0; {
				time.Sleep(time.Nanosecond)
				b.mu.Lock()
				for id, c := range b.blocked {
					close(c)
					delete(b.blocked, id)
					left--
				}
				b.mu.Unlock()
			}
		}
		over.Store(true)
		trims.Wait()
		synctest.Wait()
		b.want(t, 10*burst, true)
	})
}

// TestCheap counts what a busy socket with handlers that do not block takes of the scheduler and of
// the kernel: no worker for each message, hardly a standby, one send for each batch.
func TestCheap(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const batches, batch = 500, 64
		f := newFakeIO(t, batch)
		var sends, sent, handled atomic.Int64
		f.stall = func(int) { sends.Add(1) }
		f.sent = func(int) { sent.Add(1) }
		packets := newPackets(batch)
		e := newEngine(f, Options{Batch: batch, FairnessCap: 4 * batch}, nil, packets, new(counters), func(e *engine, p *packet) {
			r := newReply()
			r.buf, r.peer = append(r.buf[:0], p.data...), p.peer
			e.took()
			handled.Add(1)
			e.out.add(r)
		})
		f.arrive(numbers(0, batches*batch)...)
		e.start()
		synctest.Wait()
		if handled.Load() != batches*batch || sent.Load() != batches*batch {
			t.Fatalf("%d handled, %d sent", handled.Load(), sent.Load())
		}
		// The scheduler takes the processor from a worker now and then.
		pauses, standbys, spawned := e.count.pauses.Load(), e.count.standbys.Load(), e.count.spawned.Load()
		if pauses != batches/4 {
			t.Errorf("%d pauses in %d batches", pauses, batches)
		}
		if standbys > batches/2 {
			t.Errorf("%d standbys readied for %d batches", standbys, batches)
		}
		if spawned > 100 {
			t.Errorf("%d workers started", spawned)
		}
		if n := sends.Load(); n > batches+batches/2 {
			t.Errorf("%d sends for %d batches", n, batches)
		}

		// Datagrams one by one are no reason to pause.
		for id := batches * batch; id < batches*batch+9*batch; id++ {
			f.arrive(id)
			synctest.Wait()
		}
		if n := e.count.pauses.Load(); n != pauses {
			t.Errorf("%d pauses of a socket that was empty after each datagram", n-pauses)
		}
		stopEngine(e)
	})
}

// TestStopGivesUp stops while datagrams never cease to come: the limit ends it.
func TestStopGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeIO(t, 1)
		packets := newPackets(1)
		serve := func(e *engine, p *packet) { e.took() }
		e := newEngine(endlessIO{f}, Options{Batch: 1, FairnessCap: 256}, nil, packets, new(counters), serve)
		e.start()
		time.Sleep(5 * time.Millisecond)
		began := time.Now()
		e.stopReading(50 * time.Millisecond)
		<-e.readDone
		if d := time.Since(began); d < 50*time.Millisecond || d > 55*time.Millisecond {
			t.Errorf("the drain took %v, the limit is 50ms", d)
		}
		e.dismiss()
		<-e.done
	})
}

// endlessIO has a datagram every millisecond.
type endlessIO struct{ *fakeIO }

func (io endlessIO) receive(ps []packet, wait bool) (int, bool, error) {
	time.Sleep(time.Millisecond)
	io.arrive(0)
	return io.fakeIO.receive(ps, wait)
}
