package fastudp

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestStopReadingStuck stops while the reader waits for room in the send buffer: it is not waited for
// beyond the drain limit, so that TCP and the stock server get their own time to stop.
func TestStopReadingStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBlockable(func(int) bool { return false })
		e, f := blockedEngine(t, b, 64, 0)
		gate := make(chan struct{})
		f.stall = func(int) { <-gate }
		f.arrive(numbers(0, 10)...) // answered within the batch: the reader sends the answers, and is stuck
		synctest.Wait()
		l := &listener{
			engines: []*engine{e}, shared: []bool{false}, serving: true,
			started: make(chan struct{}), stock: newStockConn(testLocal, 10, 1),
		}
		close(l.started)
		begin := time.Now()
		l.stopReading()
		if d := time.Since(begin); d < drainLimit/2 || d > drainLimit {
			t.Errorf("stopReading took %v with a stuck reader, want %v", d, drainLimit)
		}
		close(gate)
		<-e.done
	})
}
