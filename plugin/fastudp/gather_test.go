package fastudp

import (
	"testing"
	"time"
)

// TestArrivals checks when a reader gathers and when it ends.
func TestArrivals(t *testing.T) {
	type reads struct {
		times, n int
		gathered bool
	}
	for name, c := range map[string]struct {
		reads []reads
		want  bool
	}{
		"nothing yet":              {nil, false},
		"one at a time":            {[]reads{{1000, 1, false}}, false},
		"two at a time":            {[]reads{{500, 2, false}}, false},
		"one burst":                {[]reads{{1, gatherTest - 1, false}}, false},
		"three at a time":          {[]reads{{22, 3, false}}, true},
		"four and one":             {[]reads{{12, 4, false}, {16, 1, false}}, false},
		"a full read":              {[]reads{{1, 192, false}}, true},
		"gathers on":               {[]reads{{22, 3, false}, {50, 10, true}}, true},
		"what a wait finds":        {[]reads{{22, 3, false}, {50, 1, false}}, true},
		"gathered three":           {[]reads{{22, 3, false}, {1, 3, true}}, true},
		"gathered too little":      {[]reads{{22, 3, false}, {50, 10, true}, {1, 2, true}}, false},
		"measured again":           {[]reads{{22, 3, false}, {103, 10, true}}, false},
		"measured again, and high": {[]reads{{22, 3, false}, {103, 10, true}, {22, 3, false}}, true},
		"measured again, and low":  {[]reads{{22, 3, false}, {103, 10, true}, {64, 1, false}}, false},
	} {
		var a arrivals
		for _, r := range c.reads {
			for range r.times {
				a.add(r.n, r.gathered)
			}
		}
		if got := a.left > 0; got != c.want {
			t.Errorf("%s: gathers %v, want %v", name, got, c.want)
		}
	}
}

// gatherEngine is an engine whose handlers answer nothing and note what they got.
func gatherEngine(t *testing.T, handle func(e *engine, id int)) (*fakeIO, *engine) {
	f := newFakeIO(t, 64)
	f.cap, f.alone = 192, true
	e := newEngine(f, Options{Batch: 64, FairnessCap: f.cap}, nil, newPackets(64), new(counters), func(e *engine, p *packet) {
		id, _, _ := readTestQuery(p.data)
		e.took()
		handle(e, id)
	})
	e.arrivals.left = gatherRun
	return f, e
}

// TestGather has some queries come in each gather: they are read without a wait, until others must have
// their turn, and a gather that brings nothing is followed by a wait.
func TestGather(t *testing.T) {
	const each, gathers = 10, 5 // 10, and 5 times 10 and the price are more than half of the fairness cap
	handled := make(chan int, 1000)
	f, e := gatherEngine(t, func(_ *engine, id int) { handled <- id })
	next := 0
	more := func(n int) {
		ids := make([]int, n)
		for i := range ids {
			ids[i] = next
			next++
		}
		f.arrive(ids...)
	}
	f.gathered = func() { more(each) }
	expect := func(n int) {
		t.Helper()
		for range n {
			select {
			case <-handled:
			case <-time.After(stuckLimit):
				t.Fatalf("%d of %d queries handled, %d gathers", len(handled), next, f.gathers.Load())
			}
		}
	}
	more(each)
	e.start()
	// The first gather comes after the first read; there are gathers until half of the cap is served.
	expect(each * (gathers + 1))
	awaitWait(t, f)
	if got := f.gathers.Load(); got != gathers {
		t.Errorf("%d gathers before the first wait, want %d", got, gathers)
	}

	f.gathered = nil
	more(1)
	expect(1)
	awaitWait(t, f)
	if got := f.gathers.Load(); got != gathers+1 {
		t.Errorf("%d gathers, want one that brought nothing after %d", got, gathers)
	}
	more(1)
	expect(1)
	awaitWait(t, f)
	if got := f.gathers.Load(); got != gathers+1 {
		t.Errorf("%d gathers after one that brought nothing", got-gathers-1)
	}
	stopEngine(e)
}

// TestGatherNot has a query in a handler, which would want the processor: the reader waits.
func TestGatherNot(t *testing.T) {
	hold, handled := make(chan struct{}), make(chan int, 10)
	f, e := gatherEngine(t, func(e *engine, id int) {
		at := e.admit()
		handled <- id
		if id == 1 {
			<-hold
		}
		e.release(at)
	})
	e.start()
	awaitWait(t, f) // the queue was empty from the start
	before := f.gathers.Load()
	if before != 1 {
		t.Errorf("%d gathers of an idle engine that gathers, want 1", before)
	}
	for id := 1; id < 20; id += 4 {
		f.arrive(id, id+1, id+2, id+3) // enough to go on gathering
		for range 4 {
			<-handled
		}
		awaitWait(t, f)
	}
	if got := f.gathers.Load(); got != before {
		t.Errorf("%d gathers while a query was in a handler", got-before)
	}
	close(hold)
	stopEngine(e)
}

// TestGatherCoarse: where the system cannot sleep for so short a time the reader waits.
func TestGatherCoarse(t *testing.T) {
	f := newFakeIO(t, 64)
	f.coarse = true
	f.cap = 192
	handled := make(chan struct{}, 10)
	e := newEngine(f, Options{Batch: 64, FairnessCap: f.cap}, nil, newPackets(64), new(counters), func(e *engine, _ *packet) {
		e.took()
		handled <- struct{}{}
	})
	e.arrivals.left = gatherRun
	e.start()
	f.arrive(1)
	<-handled
	awaitWait(t, f)
	if got := f.gathers.Load(); got != 0 {
		t.Errorf("%d gathers", got)
	}
	stopEngine(e)
}

// awaitWait returns when the reader waits for datagrams.
func awaitWait(t *testing.T, f *fakeIO) {
	t.Helper()
	for end := time.Now().Add(stuckLimit); !f.waiting.Load(); time.Sleep(10 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("the reader does not wait, %d gathers", f.gathers.Load())
		}
	}
}
