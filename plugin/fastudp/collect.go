package fastudp

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// CoreDNS's live heap is often a few MiB. GOGC's share of that is full of garbage again dozens of times
// a second under load, and each time the collector marks the same few MiB. So while collections are
// frequent the heap may grow by GCGrowth between two of them, where GOGC alone would let it grow by less.
// The stacks of handlers that wait come out of it first: a flood takes no more memory for it.
const (
	gcFrequent = 200 * time.Millisecond // between two collections: the process is busy
	gcSeldom   = 3 * time.Second        // without any: it is busy no more
	gcDefault  = 100                    // GOGC, if nobody has set it
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
	quiet  *time.Timer       // set while busy
	ours   int               // the percentage that we left
	yields bool              // somebody else sets it
}

// gcState is what the collector makes its next goal from, see "GC percent" in runtime/debug.
type gcState struct {
	percent int
	base    uint64 // bytes of which it is a percentage: live heap, stacks and globals
	stacks  uint64 // bytes of all stacks, also what they do not use
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
		{Name: "/gc/gogc:percent"}, {Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(s)
	g := gcState{
		percent: int(min(s[0].Value.Uint64(), math.MaxInt)), // the largest is "off"
		stacks:  s[1].Value.Uint64(),
	}
	for _, bytes := range s[2:] {
		g.base += bytes.Value.Uint64()
	}
	return g
}

// ask has the heap grow by so many bytes while l serves. It says false if that is somebody else's to say.
func (p *pacer) ask(l *listener, growth int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken(p.read()) {
		return false
	}
	p.asked[l] = growth
	if !p.told && p.growth() > 0 {
		p.told, p.last = true, p.now()
		p.tell()
	}
	return true
}

// withdraw takes back what l has asked.
func (p *pacer) withdraw(l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asked, l)
	if p.growth() == 0 {
		p.reset()
	}
}

// growth is the most that a listener has asked.
func (p *pacer) growth() (most int) {
	for _, n := range p.asked {
		most = max(most, n)
	}
	return most
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
	now := p.now()
	since := now.Sub(p.last)
	p.last = now
	switch {
	case p.quiet != nil:
		p.quiet.Reset(gcSeldom)
	case since < gcFrequent:
		p.quiet = time.AfterFunc(gcSeldom, func() {
			p.calm()
			p.release()
		})
	default:
		return
	}
	g := p.read()
	if p.taken(g) {
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

// calm has the collector go by GOGC until it is frequent again.
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
