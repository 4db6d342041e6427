package fastudp

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestQueueWait stops as a listener does, when no handler is left and a relay still sends: all goes
// out, or is counted when there is no more time.
func TestQueueWait(t *testing.T) {
	const n, stall = 3000, 20 * time.Millisecond
	for _, patient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			q, sent, _ := testQueue(t, 16, false)
			q.io.(*fakeIO).stall = func(int) { time.Sleep(stall) }
			var wg sync.WaitGroup
			for h := range 30 {
				wg.Go(func() {
					for i := range n / 30 {
						if err := q.add(testReply(h*100 + i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), stall/2)
			if patient {
				ctx, cancel = context.WithCancel(context.Background())
			}
			defer cancel()
			q.wait(ctx)
			q.close()
			time.Sleep(time.Second)
			synctest.Wait()
			lost := q.count.sendErrs["closed"]
			if len(*sent)+int(lost) != n || patient && lost > 0 || !patient && lost == 0 {
				t.Errorf("patient %v: %d of %d sent, %d counted as lost", patient, len(*sent), n, lost)
			}
		})
	}
}
