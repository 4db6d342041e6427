package fastudp

import (
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gatherFor becomes some 100 us, because the kernel adds the thread's timer slack, 50 us unless
// somebody has changed it, prctl(2).
const gatherFor = 50 * time.Microsecond

// canGather implements gatherer. Without high-resolution timers, time(7), a sleep lasts until the clock's
// next tick, up to 10 ms.
func (m *mmsgIO) canGather() bool { return fineTimers() }

var fineTimers = sync.OnceValue(func() bool {
	var resolution unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC, &resolution); err != nil {
		log.Warningf("Readers are woken for each few datagrams: clock_getres: %v (does a seccomp profile forbid it?)", err)
		return false
	}
	fine := resolution.Nano() <= int64(gatherFor)
	if !fine {
		log.Infof("Readers are woken for each few datagrams: the system's timers have a resolution of %v", time.Duration(resolution.Nano()))
	}
	return fine
})

// gather implements gatherer. It keeps the processor of Go's scheduler, which would not sleep for less
// than a millisecond; a collector that wants the processor ends it with a signal.
func (m *mmsgIO) gather() {
	ts := unix.NsecToTimespec(int64(gatherFor))
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
