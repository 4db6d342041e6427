package fastudp

import (
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestReleaseMemory gives memory back soon after a surge, and for surge after surge a fiftieth of the
// time at most.
func TestReleaseMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release.next, release.pending = time.Time{}, false
		var calls atomic.Int64
		freeMemory = func() {
			calls.Add(1)
			time.Sleep(200 * time.Millisecond)
		}
		defer func() { freeMemory = debug.FreeOSMemory }()
		releaseMemory()
		time.Sleep(releaseDelay + time.Second)
		synctest.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("%d times after the first surge", n)
		}
		for range 10 * 60 {
			releaseMemory()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := calls.Load(); n < 50 || n > 62 {
			t.Errorf("%d times in ten minutes of surges, each of 0.2 s", n)
		}
		time.Sleep(time.Minute) // none is left over
		synctest.Wait()
		release.next, release.pending = time.Time{}, false
	})
}
