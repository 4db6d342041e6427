package fastudp

import (
	"math"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// fakeGC is a collector that does what it is told, at times of the test's own.
type fakeGC struct {
	gcState
	time     time.Time
	sets     []int
	released int
}

func newFakePacer() (*pacer, *fakeGC) {
	f := &fakeGC{gcState: gcState{percent: gcDefault, base: 8 << 20}, time: time.Unix(1e9, 0)}
	p := newPacer()
	p.yields = false // whatever the environment has
	p.read = func() gcState { return f.gcState }
	p.set = func(percent int) {
		f.percent = percent
		f.sets = append(f.sets, percent)
	}
	p.now = func() time.Time { return f.time }
	p.release = func() { f.released++ }
	return p, f
}

// TestPace: rare collections change nothing, frequent ones let the heap grow, and what grows by itself needs no help.
func TestPace(t *testing.T) {
	p, gc := newFakePacer()
	l, m := new(listener), new(listener)
	if n, ok := p.ask(l, 64<<20); n != 64<<20 || !ok {
		t.Fatalf("in force are %d, %v", n, ok)
	}
	for _, step := range []struct {
		what  string
		after time.Duration
		base  uint64
		want  int
	}{
		{"not often", gcOften, 8 << 20, gcDefault},
		{"often", gcOften - 1, 8 << 20, 800},
		{"as often, were there GOGC alone", 8 * (gcOften - 1), 8 << 20, 800},
		{"less often, but not seldom", 8 * gcSeldom, 8 << 20, 800},
		{"a little more is live", gcOften, 9 << 20, 800},
		{"much more is live", gcOften, 16 << 20, 400},
		{"as much is live as may grow", gcOften, 64 << 20, gcDefault},
		{"even more is live", gcOften, 1 << 30, gcDefault},
		{"little is live", gcOften, 4 << 20, 1600},
		{"nothing is live", gcOften, 0, math.MaxInt32},
		{"as before", gcOften, 8 << 20, 800},
		{"seldom, were there GOGC alone", 8*gcSeldom + 8, 8 << 20, gcDefault},
		{"often again", gcOften / 2, 8 << 20, 800},
	} {
		gc.time = gc.time.Add(step.after)
		gc.base = step.base
		p.collected()
		if gc.percent != step.want {
			t.Errorf("%s: %d %%, want %d", step.what, gc.percent, step.want)
		}
	}
	if n, _ := p.ask(m, 32<<20); n != 32<<20 {
		t.Errorf("the least of two is %d", n)
	}
	p.collected()
	if gc.percent != 400 {
		t.Errorf("a listener that asks for less: %d %%", gc.percent)
	}
	if n, ok := p.ask(m, 0); n != 0 || !ok || gc.percent != gcDefault {
		t.Errorf("a listener that asks for nothing: %d %%", gc.percent)
	}
	p.collected()
	p.withdraw(m)
	p.collected()
	if gc.percent != 800 {
		t.Errorf("the listener is gone: %d %%", gc.percent)
	}
	p.withdraw(l)
	if gc.percent != gcDefault || p.quiet != nil {
		t.Errorf("no listener is left: %d %%", gc.percent)
	}
	n := len(gc.sets)
	p.collected()
	p.collected()
	if len(gc.sets) != n {
		t.Errorf("set without a listener: %v", gc.sets)
	}
}

// TestPaceForced: what somebody forces says nothing of the load.
func TestPaceForced(t *testing.T) {
	p, gc := newFakePacer()
	p.ask(new(listener), 64<<20)
	for range 3 {
		gc.forced++
		p.collected()
	}
	if gc.sets != nil {
		t.Errorf("forced collections have set %v", gc.sets)
	}
	p.collected()
	if gc.percent != 800 {
		t.Errorf("%d %% after one that was not", gc.percent)
	}
}

// TestPaceCalm gives the memory back when the load has gone.
func TestPaceCalm(t *testing.T) {
	p, gc := newFakePacer()
	p.ask(new(listener), 64<<20)
	p.collected()
	if gc.percent != 800 || p.quiet == nil {
		t.Fatalf("%d %% under load", gc.percent)
	}
	p.calm() // as before memory is given back
	if gc.percent != gcDefault || p.quiet != nil {
		t.Errorf("%d %% after it", gc.percent)
	}
	p.collected()
	if gc.percent != 800 {
		t.Errorf("%d %% under load again", gc.percent)
	}
	gc.stacks = 48 << 20 // handlers wait
	p.collected()
	if gc.percent != 200 {
		t.Errorf("%d %% with large stacks", gc.percent)
	}
	gc.stacks = 1 << 30
	p.collected()
	if gc.percent != gcDefault {
		t.Errorf("%d %% with stacks beyond all bounds", gc.percent)
	}
}

// TestPaceQuiet gives memory back when the load has gone.
func TestPaceQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, gc := newFakePacer()
		l := new(listener)
		p.ask(l, 64<<20)
		p.collected()
		for range 3 { // each collection is a sign of life
			time.Sleep(gcSilence - time.Millisecond)
			p.collected()
		}
		look := func(when string, percent, released int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if gc.percent != percent || gc.released != released {
				t.Errorf("%d %% %s, memory released %d times", gc.percent, when, gc.released)
			}
		}
		look("under load", 800, 0)
		time.Sleep(gcSilence + time.Millisecond)
		synctest.Wait()
		look("after it", gcDefault, 1)
		p.withdraw(l)
	})
}

// TestPaceYields to GOGC in the environment and to whoever else calls debug.SetGCPercent.
func TestPaceYields(t *testing.T) {
	for name, percent := range map[string]int{"GOGC=400": 400, "GOGC=off": math.MaxInt} {
		p, gc := newFakePacer()
		gc.percent = percent
		if _, ok := p.ask(new(listener), 64<<20); ok {
			t.Errorf("%s: not refused", name)
		}
		p.collected()
		if gc.sets != nil {
			t.Errorf("%s: set to %v", name, gc.sets)
		}
	}
	t.Setenv("GOGC", "100") // somebody wants just that
	p := newPacer()
	if _, ok := p.ask(new(listener), 64<<20); ok {
		t.Error("GOGC=100: not refused")
	}

	p, gc := newFakePacer()
	l := new(listener)
	p.ask(l, 64<<20)
	p.collected()
	gc.percent = 50 // somebody else
	gc.sets = nil
	gc.base = 1 << 20
	p.collected()
	p.withdraw(l)
	if gc.sets != nil {
		t.Errorf("it has set %v after somebody else", gc.sets)
	}
	if _, ok := p.ask(l, 64<<20); ok {
		t.Error("it would again")
	}
}

// TestPaceOff: who has asked for nothing gets nothing.
func TestPaceOff(t *testing.T) {
	p, gc := newFakePacer()
	p.ask(new(listener), 0)
	p.collected()
	if p.told || gc.sets != nil {
		t.Errorf("set to %v", gc.sets)
	}
}

// TestPaceOfProcess is the real collector under real garbage.
func TestPaceOfProcess(t *testing.T) {
	if os.Getenv("GOGC") != "" {
		t.Skip("GOGC is in the environment, which has the last word")
	}
	var garbage []byte
	collections := func(bytes int) uint32 {
		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		for range bytes >> 16 {
			garbage = make([]byte, 1<<16)
		}
		runtime.ReadMemStats(&is)
		return is.NumGC - was.NumGC
	}
	const work = 2 << 30
	without := collections(work)
	l := startCorefile(t, ".:0 {\nbind 127.0.0.1\nportable 1\nwhoami\n}")
	at := l.Servers()[0].LocalAddr().String()
	serving(t, at)
	for end := time.Now().Add(20 * time.Second); readGC().percent == gcDefault; {
		collections(64 << 20)
		if time.Now().After(end) {
			t.Fatal("frequent collections change nothing")
		}
	}
	with := collections(work)
	g := readGC()
	if grows := g.base * uint64(g.percent) / 100; grows < uint64(gcGrowth())/2 {
		t.Errorf("the heap may grow by %d bytes only, %d %% of %d", grows, g.percent, g.base)
	}
	if with*2 > without && gcGrowth() == defaultGCGrowth {
		t.Errorf("%d collections with, %d without for the same garbage", with, without)
	}
	l.Stop()
	becomes(t, "without a listener it is as before", func() bool { return readGC().percent == gcDefault })
	_ = garbage
}

// TestGrowthFollowsMemory: the default is no more than a share of what the process may take.
func TestGrowthFollowsMemory(t *testing.T) {
	for limit, want := range map[uint64]int{
		math.MaxUint64: 64 << 20, 1 << 30: 64 << 20, 512 << 20: 64 << 20, 256 << 20: 32 << 20, 170 << 20: 170 << 20 / 8, 8 << 20: 1 << 20, 1 << 20: 0, 0: 0,
	} {
		if got := growthFor(limit); got != want {
			t.Errorf("%d bytes of memory: %d, want %d", limit, got, want)
		}
	}
}
