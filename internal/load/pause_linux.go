package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// pause sleeps for d, or for poll if that is less. The runtime's own sleep is rounded up to a
// millisecond when nothing else runs.
func pause(d time.Duration) {
	ts := unix.NsecToTimespec(int64(min(d, poll)))
	unix.Nanosleep(&ts, nil)
}
