package fastudp

import (
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	surge        = 256         // workers that go are worth giving memory back
	releaseDelay = time.Second // for all sockets at once: it is a collection of the whole heap
)

var releasing atomic.Bool

// releaseMemory soon gives the memory of a surge back to the system. A process that has nothing to do
// collects every two minutes only.
func releaseMemory() {
	if releasing.CompareAndSwap(false, true) {
		time.AfterFunc(releaseDelay, func() {
			releasing.Store(false)
			debug.FreeOSMemory()
		})
	}
}
