package fastudp

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestReleaseMemory collects soon after a surge, and for many surges once a minute.
func TestReleaseMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release.last, release.pending = time.Now().Add(-time.Hour), false
		forced := func() uint32 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.NumForcedGC
		}
		before := forced()
		releaseMemory()
		time.Sleep(releaseDelay + time.Second)
		synctest.Wait()
		if n := forced() - before; n != 1 {
			t.Errorf("%d collections after the first surge", n)
		}
		for range 10 * 60 {
			releaseMemory()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := forced() - before; n < 10 || n > 12 {
			t.Errorf("%d collections in ten minutes of surges", n)
		}
		time.Sleep(2 * releasePause) // none is left over
		synctest.Wait()
		release.pending = false
	})
}
