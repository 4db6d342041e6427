package fastudp

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	surge        = 256         // workers that go are worth giving memory back
	releaseDelay = time.Second // so that all sockets are done
	releasePause = time.Minute // between two: each is a collection of the whole heap
)

var release struct {
	sync.Mutex
	last    time.Time
	pending bool
}

// releaseMemory soon gives the memory of a surge back to the system. A process that has nothing to do
// collects every two minutes only.
func releaseMemory() {
	release.Lock()
	defer release.Unlock()
	if release.pending {
		return
	}
	release.pending = true
	time.AfterFunc(max(releaseDelay, releasePause-time.Since(release.last)), func() {
		debug.FreeOSMemory()
		release.Lock()
		release.last, release.pending = time.Now(), false
		release.Unlock()
	})
}
