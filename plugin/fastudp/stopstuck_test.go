package fastudp

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestStopReadingStuck stops while the reader waits for room in the send buffer: it is not waited for
// beyond the drain limit, so that TCP and the stock server get their own time to stop.
func TestStopReadingStuck(t *testing.T) {
	for range 100 {
		stuck := false
		synctest.Test(t, func(t *testing.T) { stuck = stopStuck(t) })
		if stuck {
			return
		}
	}
	t.Error("the reader is never the one who sends")
}

// stopStuck says whether it was the reader who was stuck and not another worker.
func stopStuck(t *testing.T) bool {
	b := newBlockable(func(int) bool { return false })
	e, f := blockedEngine(t, b, 64, 0)
	gate := make(chan struct{})
	f.stall = func(int) { <-gate }
	f.arrive(numbers(0, 10)...) // answered within the batch: most often the reader sends the answers
	synctest.Wait()
	stuck := !f.reading.Load()
	l := &listener{
		engines: []*engine{e}, shared: []bool{false}, serving: true,
		started: make(chan struct{}), stock: newStockConn(testLocal, 10, 1),
	}
	close(l.started)
	begin := time.Now()
	l.stopReading()
	if d := time.Since(begin); stuck && (d < drainLimit/2 || d > drainLimit) {
		t.Errorf("stopReading took %v with a stuck reader, want %v", d, drainLimit)
	}
	close(gate)
	<-e.done
	return stuck
}
