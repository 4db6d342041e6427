package fastudp

import (
	"maps"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"time"
)

// CoreDNS's live heap is often a few MiB. GOGC's share of that is full of garbage again dozens of times
// a second under load, and each time the collector marks the same few MiB. So while it would run often
// the heap may grow by GCGrowth between two collections, where GOGC alone would let it grow by less.
// The stacks of handlers that wait come out of it first: a flood takes no more memory for it.
const (
	gcOften   = 5 // collections a second, if GOGC alone counted
	gcSeldom  = 1 // likewise: no longer often, if it stays so for gcSilence
	gcDefault = 100
	gcMost    = 1000    // percent: should the heap become large at once, it is a multiple of it until we look
	gcMinHeap = 4 << 20 // what Go takes a smaller heap for, at 100 %

	gcSilence = 3 * time.Second
	gcPeriod  = 250 * time.Millisecond // to look how much is allocated
	// The next goal is made when a collection ends, from the old percentage and the new heap. Nothing tells
	// of it in time, so it is looked for while the percentage is not GOGC's.
	gcRaisedPeriod = 5 * time.Millisecond
)

// pacer sets the collector's percentage for all listeners of the process. Whoever else sets it has the
// last word.
type pacer struct {
	read    func() gcState
	set     func(percent int)
	now     func() time.Time
	release func() // memory to the system: a process that has nothing to do does not collect its garbage

	fixed bool // GOGC is in the environment
	mu    sync.Mutex
	asked map[*listener]int // growth in bytes
	timer *time.Timer       // set while there is a growth
	mine  map[int]bool      // percentages that nobody else has set; who saves one may restore it later
	often bool              // it would run often
	busy  time.Time         // when it was not seldom
	above bool              // we have set more than GOGC

	allocs uint64 // bytes allocated until
	since  time.Time
}

// gcState is what the collector makes its next goal from, see "GC percent" in runtime/debug.
type gcState struct {
	percent int
	base    uint64 // bytes of which it is a percentage: live heap, stacks and globals
	stacks  uint64 // bytes of all stacks, also what they do not use
	allocs  uint64 // bytes allocated so far
}

var pace = newPacer()

func newPacer() *pacer {
	return &pacer{
		read: readGC, set: func(percent int) { debug.SetGCPercent(percent) }, now: time.Now, release: releaseMemory,
		fixed: os.Getenv("GOGC") != "", asked: make(map[*listener]int), mine: map[int]bool{gcDefault: true},
	}
}

func readGC() gcState {
	s := []metrics.Sample{
		{Name: "/gc/gogc:percent"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(s)
	g := gcState{
		percent: int(min(s[0].Value.Uint64(), math.MaxInt)), // the largest is "off"
		stacks:  s[1].Value.Uint64(),
		allocs:  s[2].Value.Uint64(),
	}
	for _, bytes := range s[3:] {
		g.base += bytes.Value.Uint64()
	}
	g.base = max(g.base, gcMinHeap)
	return g
}

// ask has the heap grow by so many bytes while l serves, or by less if another listener asks for less. It
// returns what is in force, and false if that is somebody else's to say.
func (p *pacer) ask(l *listener, growth int) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[l] = growth
	p.follow()
	return p.growth(), p.free()
}

// free says that nobody else has set the percentage.
func (p *pacer) free() bool { return !p.fixed && p.mine[p.read().percent] }

// inForce is what the heap may grow by while it would be collected often, 0 if GOGC alone counts.
func (p *pacer) inForce() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.free() {
		return 0
	}
	return p.growth()
}

// withdraw takes back what l has asked.
func (p *pacer) withdraw(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asked, l)
	p.follow()
}

// growth is the least that a listener has asked, 0 if there is none.
func (p *pacer) growth() int {
	if len(p.asked) == 0 {
		return 0
	}
	return slices.Min(slices.Collect(maps.Values(p.asked)))
}

// follow begins to look, or leaves the collector to GOGC.
func (p *pacer) follow() {
	switch grows := p.growth() > 0 && !p.fixed; {
	case grows && p.timer == nil:
		p.since, p.allocs = p.now(), p.read().allocs
		p.timer = time.AfterFunc(gcPeriod, p.look)
	case !grows && p.timer != nil:
		p.timer.Stop()
		p.timer = nil
		p.calm()
	}
}

// look is called now and then.
func (p *pacer) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return
	}
	p.adjust()
	period := gcPeriod
	if p.above {
		period = gcRaisedPeriod
	}
	p.timer.Reset(period)
}

// adjust sets the percentage for what the heap is now.
func (p *pacer) adjust() {
	g := p.read()
	if passed := p.now().Sub(p.since); passed >= gcPeriod {
		collections := float64(g.allocs-p.allocs) / float64(g.base) / passed.Seconds()
		p.since, p.allocs = p.now(), g.allocs
		if collections > gcSeldom {
			p.often = p.often || collections > gcOften
			p.busy = p.since
		} else if p.since.Sub(p.busy) > gcSilence {
			p.calm()
			return
		}
	}
	if !p.often {
		return
	}
	growth := uint64(p.growth())
	left := growth - min(growth, g.stacks)
	p.change(g.percent, int(min(max(100*left/g.base, gcDefault), gcMost)))
}

// calm leaves the collector to GOGC, until it would run often again.
func (p *pacer) calm() {
	p.often = false
	if now := p.read().percent; now != gcDefault && p.change(now, gcDefault) {
		p.release()
	}
}

// change sets another percentage, unless the one that there is is somebody else's: then it says false.
func (p *pacer) change(from, to int) bool {
	if !p.mine[from] {
		p.above = false
		return false
	}
	if from != to {
		p.mine[to] = true
		p.set(to)
	}
	p.above = to > gcDefault
	return true
}
