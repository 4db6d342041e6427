package fastudp

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	surge        = 256         // workers that go are worth giving memory back
	releaseDelay = time.Second // so that all sockets are done
	releaseShare = 50          // of the time at most one fiftieth: it is a collection of the whole heap
)

var release struct {
	sync.Mutex
	next    time.Time
	pending bool
	again   bool // somebody asked while it ran
}

// releaseMemory soon gives the memory of a surge back to the system. A process that has nothing to do
// collects every two minutes only.
func releaseMemory() {
	release.Lock()
	defer release.Unlock()
	if release.pending {
		release.again = true
		return
	}
	release.pending = true
	time.AfterFunc(max(releaseDelay, time.Until(release.next)), func() {
		begin := time.Now()
		release.Lock()
		release.again = false
		release.Unlock()
		freeMemory()
		release.Lock()
		again := release.again
		release.next, release.pending = time.Now().Add(releaseShare*time.Since(begin)), false
		release.Unlock()
		if again {
			releaseMemory()
		}
	})
}

// freeMemory is replaced by a test.
var freeMemory = debug.FreeOSMemory
