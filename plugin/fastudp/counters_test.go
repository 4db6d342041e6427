package fastudp

import (
	"maps"
	"sync"
	"testing"
	"time"
)

// TestSizes counts each size that a batch can have, and looks where it has gone.
func TestSizes(t *testing.T) {
	var s sizes
	for n := 1; n <= MaxBatch; n++ {
		s.add(n)
	}
	want := make(map[float64]uint64)
	for le := uint64(1); le <= MaxBatch; le *= 2 {
		want[float64(le)] = le
	}
	if got, all := s.upTo(); all != MaxBatch || !maps.Equal(got, want) {
		t.Errorf("%d batches, %v, want %v", all, got, want)
	}
}

// TestPeak: what is in flight when all of a batch has been taken counts, and it stays when it has ended.
func TestPeak(t *testing.T) {
	const n = 100
	release := make(chan bool)
	end := sync.OnceFunc(func() { close(release) })
	f := newFakeIO(t, 8)
	packets, count := newPackets(8), new(counters)
	e := newEngine(f, Options{Batch: 8, FairnessCap: 256}, newBudget(1000, 1), packets, count, func(e *engine, p *packet) {
		at := e.admit()
		e.took()
		<-release
		e.release(at)
	})
	e.start()
	defer stopEngine(e)
	defer end()
	for id := range n {
		f.arrive(id)
	}
	becomes(t, "all are seen in flight", func() bool { return count.peak.Load() == n })
	end()
	becomes(t, "all have ended", func() bool { return e.inflight() == 0 })
	f.arrive(n)
	becomes(t, "one more has ended", func() bool { return count.received.Load() == n+1 && e.inflight() == 0 })
	if got := count.peak.Load(); got != n {
		t.Errorf("the peak is %d", got)
	}
}

// becomes waits for a state that comes by itself.
func becomes(t *testing.T, what string, state func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !state(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
