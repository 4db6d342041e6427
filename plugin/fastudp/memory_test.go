package fastudp

import (
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// TestReleaseMemory gives memory back soon after a surge, and for surge after surge a fiftieth of the
// time at most.
func TestReleaseMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release.next, release.pending = time.Time{}, false
		calls := 0
		freeMemory = func() {
			calls++
			time.Sleep(200 * time.Millisecond)
		}
		defer func() { freeMemory = debug.FreeOSMemory }()
		releaseMemory()
		time.Sleep(releaseDelay + time.Second)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("%d times after the first surge", calls)
		}
		for range 10 * 60 {
			releaseMemory()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if calls < 50 || calls > 62 {
			t.Errorf("%d times in ten minutes of surges, each of 0.2 s", calls)
		}
		time.Sleep(time.Minute) // none is left over
		synctest.Wait()
		release.next, release.pending = time.Time{}, false
	})
}
