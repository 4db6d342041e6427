package fastudp

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gatherFor becomes some 100 us, because the kernel adds the thread's timer slack, 50 us unless
// somebody has changed it, prctl(2).
const gatherFor = 50 * time.Microsecond

// gather implements gatherer. It keeps the processor of Go's scheduler, which would not sleep for less
// than a millisecond; a collector that wants the processor ends it with a signal.
func (m *mmsgIO) gather() {
	ts := unix.NsecToTimespec(int64(gatherFor))
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
