package fastudp

import (
	"maps"
	"math"
	"os"
	"runtime"
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
	gcOften   = 200 * time.Millisecond // between two collections, if GOGC alone counted
	gcSeldom  = time.Second            // likewise: no longer often
	gcSilence = 3 * time.Second        // without a collection: the load has gone
	gcDefault = 100                    // GOGC, if nobody has set it
)

// pacer sets the collector's percentage for all listeners of the process. Whoever else sets it has the
// last word.
type pacer struct {
	read func() gcState
	set  func(percent int)
	now  func() time.Time
	// release gives memory back to the system: a process that has nothing to do makes no garbage, and so
	// does not collect the old.
	release func()

	mu     sync.Mutex
	asked  map[*listener]int // growth in bytes
	told   bool              // of the end of the next collection
	last   time.Time         // when one ended
	forced uint64            // collections that somebody has asked for, until then
	quiet  *time.Timer       // set while it would run often
	ours   int               // the percentage that we left
	yields bool              // somebody else sets it
}

// gcState is what the collector makes its next goal from, see "GC percent" in runtime/debug.
type gcState struct {
	percent int
	base    uint64 // bytes of which it is a percentage: live heap, stacks and globals
	stacks  uint64 // bytes of all stacks, also what they do not use
	forced  uint64 // collections by runtime.GC and debug.FreeOSMemory so far
}

var pace = newPacer()

func init() { pace.release = releaseMemory } // which refers to pace

func newPacer() *pacer {
	given := os.Getenv("GOGC") != ""
	return &pacer{
		read: readGC, set: func(percent int) { debug.SetGCPercent(percent) }, now: time.Now,
		asked: make(map[*listener]int), ours: gcDefault, yields: given,
	}
}

func readGC() gcState {
	s := []metrics.Sample{
		{Name: "/gc/gogc:percent"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/gc/cycles/forced:gc-cycles"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(s)
	g := gcState{
		percent: int(min(s[0].Value.Uint64(), math.MaxInt)), // the largest is "off"
		stacks:  s[1].Value.Uint64(),
		forced:  s[2].Value.Uint64(),
	}
	for _, bytes := range s[3:] {
		g.base += bytes.Value.Uint64()
	}
	return g
}

// ask has the heap grow by so many bytes while l serves, or by less if another listener asks for less. It
// returns what is in force, and false if that is somebody else's to say.
func (p *pacer) ask(l *listener, growth int) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken(p.read()) {
		return 0, false
	}
	p.asked[l] = growth
	p.follow()
	return p.growth(), true
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

// follow begins to follow the collections, or leaves the collector to GOGC.
func (p *pacer) follow() {
	if p.growth() == 0 {
		p.reset()
	} else if !p.told {
		p.told, p.last, p.forced = true, p.now(), p.read().forced
		p.tell()
	}
}

// taken says whether somebody else sets the percentage.
func (p *pacer) taken(g gcState) bool {
	p.yields = p.yields || g.percent != p.ours
	return p.yields
}

// tell has collected called when the next collection has ended.
func (p *pacer) tell() { runtime.AddCleanup(new([]byte), (*pacer).collected, p) }

// collected looks how soon a collection has followed the last one.
func (p *pacer) collected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	growth := p.growth()
	p.told = growth > 0 && !p.yields
	if !p.told {
		return
	}
	p.tell()
	now, g := p.now(), p.read()
	since, forced := now.Sub(p.last), g.forced > p.forced
	p.last, p.forced = now, g.forced
	if forced || p.taken(g) {
		return
	}
	alone := since * gcDefault / time.Duration(p.ours)
	switch {
	case alone > gcSeldom:
		p.reset()
		return
	case p.quiet != nil:
		p.quiet.Reset(gcSilence)
	case alone < gcOften:
		p.quiet = time.AfterFunc(gcSilence, func() {
			p.calm()
			p.release()
		})
	default:
		return
	}
	left := uint64(growth) - min(uint64(growth), g.stacks)
	want := max(gcDefault, int(min(100*left/max(g.base, 1), math.MaxInt32)))
	// To set it stops the world for a moment: a small difference is not worth that.
	if d := want - g.percent; d > g.percent/8 || -d > g.percent/8 {
		p.ours = want
		p.set(want)
	}
}

// calm has the collector go by GOGC until it would run often again.
func (p *pacer) calm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reset()
}

func (p *pacer) reset() {
	if p.quiet == nil {
		return
	}
	p.quiet.Stop()
	p.quiet = nil
	if !p.taken(p.read()) && p.ours != gcDefault {
		p.ours = gcDefault
		p.set(gcDefault)
	}
}
