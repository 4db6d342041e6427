package fastudp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// engine serves one socket. Its workers claim the messages of a batch by counting up an atomic
// cursor and handle them on their own goroutines. Who claims the index after the last message, and
// only he, becomes the reader: he sends what is queued and receives the next batch. While a worker
// is in a handler that may block, one standby is ready to run: the scheduler gives it the processor
// when the worker blocks, and it claims the next message. So nothing waits for a handler, and
// nothing is started or woken for a message whose handler does not block.
type engine struct {
	io       packetIO
	serve    func(*engine, *packet) // takes what it needs of the packet, calls e.took, then handles it
	out      *sendQueue
	budget   *budget // nil is no bound
	cap      int     // messages served before a pause
	packets  []packet
	size     int // packets to receive at once
	served   int // since the socket was last empty; the reader's alone, as are arrivals
	arrivals arrivals
	gather   func() // nil where the I/O cannot

	listener *listener // for the responses' sake

	_ [64]byte
	// claim is the batch's generation (31 bits), its number of messages (11 bits) and the cursor
	// (22 bits) in one word, so that a late claimer never pairs an index with another batch's length.
	claim atomic.Uint64
	taken atomic.Int32 // messages of the batch that need its memory no more
	ready atomic.Bool  // a standby has been readied that has not claimed yet
	_     [64 - 16]byte
	// own, borrowed and extra count queries in handlers, by the part of the budget that they are on.
	own      atomic.Int64
	borrowed atomic.Int64
	extra    atomic.Int64
	_        [64 - 24]byte

	count *counters
	local atomic.Pointer[netip.Addr] // that was asked last

	mu        sync.Mutex
	idle      []*worker
	workers   int
	trim      *time.Timer // set while there are more idle workers than keepIdle
	fewest    int         // idle workers at once since the last trim
	dismissed int         // by trims since memory was given back
	stopped   bool

	stopping  atomic.Bool
	drainTill atomic.Int64  // unix nanoseconds
	readDone  chan struct{} // the last reader has drained the socket
	done      chan struct{} // and no worker is left
	_         [128]byte     // as in counters
}

const (
	genShift   = 33
	lenShift   = 22
	lenMask    = 1<<11 - 1
	indexMask  = 1<<22 - 1
	noGen      = 1<<64 - 1
	keepIdle   = 16 // idle workers that stay for good
	trimPeriod = time.Second
)

// worker is one goroutine of an engine.
type worker struct {
	wake chan bool // buffered; false means leave
	gen  uint64    // the last batch from which it has claimed a message since it rested
}

func newEngine(io packetIO, o Options, b *budget, packets []packet, count *counters, serve func(*engine, *packet)) *engine {
	e := &engine{
		io: io, serve: serve, budget: b, cap: o.FairnessCap, packets: packets, size: min(len(packets), o.FairnessCap), count: count,
		readDone: make(chan struct{}), done: make(chan struct{}),
	}
	e.out = newSendQueue(io, count, o.Batch)
	if g, ok := io.(gatherer); ok && g.canGather() {
		e.gather = g.gather
	}
	return e
}

// start begins to serve: the cursor stands at the end of an empty batch, so the first worker reads.
func (e *engine) start() {
	e.mu.Lock()
	e.spawn()
	e.mu.Unlock()
}

// spawn starts a worker; the caller holds e.mu.
func (e *engine) spawn() {
	e.workers++
	e.count.spawned.Add(1)
	go e.work(&worker{wake: make(chan bool, 1), gen: noGen})
}

func (e *engine) work(w *worker) {
	e.ready.Store(false)
	for {
		v := e.claim.Add(1) - 1
		i, n, gen := v&indexMask, v>>lenShift&lenMask, v>>genShift
		switch {
		case i < n:
			if w.gen != gen {
				w.gen = gen
				e.readyStandby()
			}
			e.serve(e, &e.packets[i])
		case i == n:
			if !e.read(n, gen) {
				e.leave()
				return
			}
		default:
			if !e.rest(w) {
				e.leave()
				return
			}
		}
	}
}

// took says that a claimed packet's memory may be reused.
func (e *engine) took() { e.taken.Add(1) }

// place is the part of the bound that a query in a handler is on.
type place uint8

const (
	nowhere  place = iota // it was not let in
	own                   // the socket's
	borrowed              // of what all sockets share
	extra                 // beyond
)

// admit counts a query in, for release.
func (e *engine) admit() place {
	if n := e.own.Add(1); e.budget == nil || n <= e.budget.own {
		return own
	}
	e.own.Add(-1)
	if !e.budget.borrow() {
		return nowhere
	}
	e.borrowed.Add(1)
	return borrowed
}

// admitExtra counts a query in beyond the bound.
func (e *engine) admitExtra() place {
	if !e.budget.borrowExtra() {
		return nowhere
	}
	e.extra.Add(1)
	return extra
}

func (e *engine) release(p place) {
	switch p {
	case own:
		e.own.Add(-1)
	case borrowed:
		e.borrowed.Add(-1)
		e.budget.giveBack()
	case extra:
		e.extra.Add(-1)
		e.budget.giveBackExtra()
	}
}

// keep returns a pointer to a, the same for the same address that is asked again: most often there is but one.
func (e *engine) keep(a netip.Addr) *netip.Addr {
	l := e.local.Load()
	if l == nil || *l != a {
		l = &a
		e.local.Store(l)
	}
	return l
}

// filling says that half of the socket's own part of the bound is taken.
func (e *engine) filling() bool { return e.budget != nil && e.own.Load() > e.budget.own/2 }

// inflight is how many queries are in handlers.
func (e *engine) inflight() int64 { return e.own.Load() + e.borrowed.Load() + e.extra.Load() }

// readyStandby makes one more worker runnable, unless one already is.
func (e *engine) readyStandby() {
	if e.ready.Load() || !e.ready.CompareAndSwap(false, true) {
		return
	}
	e.count.standbys.Add(1)
	e.mu.Lock()
	// The worker is off the idle list before it is woken: two wakers never choose the same one.
	if k := len(e.idle); k > 0 {
		w := e.idle[k-1]
		e.idle[k-1] = nil
		e.idle = e.idle[:k-1]
		e.fewest = min(e.fewest, k-1)
		e.mu.Unlock()
		w.wake <- true
		return
	}
	e.spawn()
	e.mu.Unlock()
}

// rest parks w until it is readied; false means that it shall leave.
func (e *engine) rest(w *worker) bool {
	e.mu.Lock()
	if e.stopped {
		e.mu.Unlock()
		return false
	}
	e.idle = append(e.idle, w)
	if e.trim == nil {
		e.armTrim()
	}
	e.mu.Unlock()
	if !<-w.wake {
		return false
	}
	w.gen = noGen
	e.ready.Store(false)
	return true
}

// armTrim looks again after a while if there are many idle workers; the caller holds e.mu.
func (e *engine) armTrim() {
	e.fewest = len(e.idle)
	if e.fewest > keepIdle {
		e.trim = time.AfterFunc(trimPeriod, e.trimIdle)
	}
}

// trimIdle sends those idle workers away that were not needed in the last period, but keepIdle: each
// holds a stack that a handler has made large.
func (e *engine) trimIdle() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.trim = nil
	if e.stopped {
		return
	}
	if k := e.fewest - keepIdle; k > 0 {
		for _, w := range e.idle[:k] { // they have rested longest
			w.wake <- false
		}
		e.idle = append(make([]*worker, 0, keepIdle), e.idle[k:]...)
		e.dismissed += k
	}
	e.armTrim()
	if e.trim == nil && e.dismissed >= surge {
		e.dismissed = 0
		releaseMemory()
	}
}

func (e *engine) leave() {
	e.mu.Lock()
	e.workers--
	last := e.stopped && e.workers == 0
	e.mu.Unlock()
	if last {
		close(e.done)
	}
}

// read is the reader's part. It returns with a new batch published, or false when the engine stops.
func (e *engine) read(had, gen uint64) bool {
	e.out.draining.Store(false)
	e.out.flush()
	e.out.waitRoom()
	for e.taken.Load() != int32(had) {
		runtime.Gosched() // a claimer has yet to copy its message out
	}
	e.count.look(e.inflight())
	if e.served >= e.cap {
		e.served = 0
		e.count.pauses.Add(1)
		e.io.pause()
	}
	n := e.receive()
	if n == 0 {
		return false
	}
	e.taken.Store(0)
	e.out.draining.Store(true)
	e.claim.Store((gen+1)<<genShift | uint64(n)<<lenShift)
	return true
}

// receive gets the next datagrams, or none when the engine stops and the socket is drained.
func (e *engine) receive() int {
	gathered := false
	for failures := 0; ; {
		stopping := e.stopping.Load()
		if stopping && time.Now().UnixNano() > e.drainTill.Load() {
			break
		}
		gather := !stopping && !gathered && e.mayGather()
		n, waited, err := e.io.receive(e.packets[:min(e.size, e.cap-e.served)], !stopping && !gather)
		switch {
		case n > 0:
			if waited {
				e.served = 0
			}
			e.served += n
			e.arrivals.add(n, gathered)
			e.count.reads.add(n)
			e.count.received.Add(uint64(n))
			return n
		case errors.Is(err, net.ErrClosed):
			// Only our own stop closes the socket.
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case err != nil:
			// The network went away or memory is short: the socket stays, and so do we, without spinning.
			e.count.recvError(errorName(err))
			if failures++; failures > 10 {
				time.Sleep(min(time.Duration(failures)*time.Millisecond, 100*time.Millisecond))
			}
			continue
		case gather:
			e.gather()
			gathered = true
			e.served = min(e.served+gatherPrice, e.cap-1)
			continue
		case !stopping:
			continue
		}
		break
	}
	close(e.readDone)
	return 0
}

// mayGather says whether the reader, if its queue is empty, had better sleep than wait: the queries come
// fast, none is in a handler that would want the processor, and others have had it lately.
func (e *engine) mayGather() bool {
	return e.gather != nil && e.arrivals.left > 0 && e.served < e.cap/2 && e.inflight() == 0
}

// stopReading has the reader stop when it has taken what the kernel has queued, or after limit.
func (e *engine) stopReading(limit time.Duration) {
	e.drainTill.Store(time.Now().Add(limit).UnixNano())
	e.stopping.Store(true)
	e.io.interrupt()
}

// dismiss sends the idle workers away; the others leave when their handlers return.
func (e *engine) dismiss() {
	e.mu.Lock()
	e.stopped = true
	if e.trim != nil {
		e.trim.Stop()
	}
	for _, w := range e.idle {
		w.wake <- false
	}
	e.idle = nil
	last := e.workers == 0
	e.mu.Unlock()
	if last {
		close(e.done)
	}
}
