package fastudp

import (
	"math"
	"sync"
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
	p.fixed = false // whatever the environment has
	p.read = func() gcState { return f.gcState }
	p.set = func(percent int) {
		f.percent = percent
		f.sets = append(f.sets, percent)
	}
	p.now = func() time.Time { return f.time }
	p.release = func() { f.released++ }
	return p, f
}

// run allocates so much that GOGC alone would collect so often in a second, and then p looks.
func (f *fakeGC) run(p *pacer, collections float64) {
	f.allocs += uint64(collections * gcPeriod.Seconds() * float64(f.base))
	f.time = f.time.Add(gcPeriod)
	p.look()
}

// TestPace: rare collections change nothing, frequent ones let the heap grow, and what grows by itself needs no help.
func TestPace(t *testing.T) {
	p, gc := newFakePacer()
	l, m := new(listener), new(listener)
	if n, ok := p.ask(l, 64<<20); n != 64<<20 || !ok {
		t.Fatalf("in force are %d, %v", n, ok)
	}
	for _, step := range []struct {
		what        string
		collections float64
		base        uint64
		want        int
	}{
		{"nothing to do", 0, 8 << 20, gcDefault},
		{"not often", gcOften, 8 << 20, gcDefault},
		{"often", gcOften + 1, 8 << 20, 800},
		{"less often, but not seldom", gcSeldom + 0.1, 8 << 20, 800},
		{"seldom for a moment", 0, 8 << 20, 800},
		{"more is live", 0, 16 << 20, 400},
		{"as much is live as may grow", 9, 64 << 20, gcDefault},
		{"even more is live", 9, 1 << 30, gcDefault},
		{"little is live", 9, gcMinHeap, gcMost},
		{"as before", 9, 8 << 20, 800},
		{"seldom", gcSeldom, 8 << 20, 800},
		{"for long", -1, 8 << 20, gcDefault},
		{"not often again", gcOften, 8 << 20, gcDefault},
		{"often again", 1000, 8 << 20, 800},
	} {
		gc.base = step.base
		if step.collections < 0 {
			gc.time = gc.time.Add(gcSilence - gcPeriod)
		}
		gc.run(p, max(step.collections, 0))
		if gc.percent != step.want || p.above != (step.want > gcDefault) {
			t.Errorf("%s: %d %%, want %d", step.what, gc.percent, step.want)
		}
	}
	if gc.released != 1 {
		t.Errorf("memory was released %d times for one end of the load", gc.released)
	}

	// Between two looks at the load the heap is looked at.
	gc.base = 16 << 20
	p.look()
	if gc.percent != 400 {
		t.Errorf("more is live at once: %d %%", gc.percent)
	}
	gc.stacks = 32 << 20 // handlers wait
	p.look()
	if gc.percent != 200 {
		t.Errorf("with large stacks: %d %%", gc.percent)
	}
	gc.stacks = 1 << 30
	p.look()
	if gc.percent != gcDefault {
		t.Errorf("with stacks beyond all bounds: %d %%", gc.percent)
	}
	gc.stacks = 0

	if n, _ := p.ask(m, 32<<20); n != 32<<20 {
		t.Errorf("the least of two is %d", n)
	}
	p.look()
	if gc.percent != 200 {
		t.Errorf("a listener that asks for less: %d %%", gc.percent)
	}
	if n, ok := p.ask(m, 0); n != 0 || !ok || gc.percent != gcDefault {
		t.Errorf("a listener that asks for nothing: %d %%", gc.percent)
	}
	p.withdraw(m)
	gc.run(p, 9)
	if gc.percent != 400 {
		t.Errorf("the listener is gone: %d %%", gc.percent)
	}
	p.withdraw(l)
	if gc.percent != gcDefault || p.timer != nil {
		t.Errorf("no listener is left: %d %%", gc.percent)
	}
	n := len(gc.sets)
	gc.run(p, 9)
	if len(gc.sets) != n {
		t.Errorf("set without a listener: %v", gc.sets)
	}
}

// TestPaceTime looks now and then, and much more often while more than GOGC is set.
func TestPaceTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, gc := newFakePacer()
		var mu sync.Mutex
		looks := 0
		p.now = time.Now
		p.read = func() gcState {
			mu.Lock()
			defer mu.Unlock()
			looks++
			gc.allocs += 1 << 30
			return gc.gcState
		}
		l := new(listener)
		count := func(d time.Duration) int {
			mu.Lock()
			was := looks
			mu.Unlock()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return looks - was
		}
		if p.ask(l, 64<<20); count(gcPeriod-time.Millisecond) != 0 {
			t.Error("it looks before it is time")
		}
		if n := count(time.Second); n < 100 || n > 250 {
			t.Errorf("under load it looks %d times in a second", n)
		}
		p.withdraw(l)
		if n := count(time.Minute); n != 0 {
			t.Errorf("without a listener it looks %d times in a minute", n)
		}
	})
}

// TestPaceYields to GOGC in the environment and to whoever else calls debug.SetGCPercent.
func TestPaceYields(t *testing.T) {
	for name, percent := range map[string]int{"400": 400, "off": math.MaxInt, "50": 50} {
		p, gc := newFakePacer()
		gc.percent = percent
		if _, ok := p.ask(new(listener), 64<<20); ok {
			t.Errorf("%s: not refused", name)
		}
		if got := p.inForce(); got != 0 {
			t.Errorf("%s: %d in force", name, got)
		}
		gc.run(p, 9)
		gc.run(p, 0)
		if gc.sets != nil {
			t.Errorf("%s: set to %v", name, gc.sets)
		}
	}
	t.Setenv("GOGC", "100") // somebody wants just that
	if _, ok := newPacer().ask(new(listener), 64<<20); ok {
		t.Error("GOGC=100: not refused")
	}

	p, gc := newFakePacer()
	l := new(listener)
	p.ask(l, 64<<20)
	gc.run(p, 9)
	if got := p.inForce(); got != 64<<20 {
		t.Errorf("%d in force", got)
	}
	ours := gc.percent
	gc.percent, gc.sets = 50, nil // somebody else
	gc.run(p, 9)
	gc.time = gc.time.Add(gcSilence)
	gc.run(p, 0)
	if gc.sets != nil || p.above {
		t.Errorf("it has set %v after somebody else", gc.sets)
	}
	gc.percent = ours // what they had saved
	p.withdraw(l)
	if gc.percent != gcDefault {
		t.Errorf("%d %% is left of what somebody has saved and restored", gc.percent)
	}
}

// TestPaceOff: who has asked for nothing gets nothing.
func TestPaceOff(t *testing.T) {
	p, gc := newFakePacer()
	p.ask(new(listener), 0)
	gc.run(p, 9)
	if p.timer != nil || gc.sets != nil {
		t.Errorf("set to %v", gc.sets)
	}
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
