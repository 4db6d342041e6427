package fastudp

import (
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// turn lets a busy reader give everything else its turn. Yielding to the scheduler is not enough: as
// long as something is runnable the scheduler does not look which descriptors have become ready,
// and other sockets would wait for the runtime's monitor, 10 ms and more. So the reader parks on a
// descriptor that is ready already: the look that finds it finds all others.
type turn struct {
	file   *os.File
	raw    syscall.RawConn
	parked bool
	pass1  func(fd uintptr) bool
	buf    [8]byte
}

// newTurn makes a turn. If the process has no descriptor left it can only yield to the scheduler.
func newTurn() *turn {
	t := new(turn)
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		sayNoEventfd(err)
		return t
	}
	t.file = os.NewFile(uintptr(fd), "eventfd")
	if t.raw, err = t.file.SyscallConn(); err != nil {
		t.close()
		return t
	}
	t.pass1 = t.step
	return t
}

// sayNoEventfd is not about a lack of descriptors, of which the sockets tell.
func sayNoEventfd(err error) {
	if err != unix.EMFILE && err != unix.ENFILE {
		noEventfd.Do(func() {
			log.Warningf("Busy sockets may keep others waiting for some ms: eventfd: %v (does a seccomp profile forbid it?)", err)
		})
	}
}

var noEventfd sync.Once

// pass returns when the scheduler has run what was ready and has looked for more.
func (t *turn) pass() {
	if t.file == nil {
		runtime.Gosched()
		return
	}
	t.parked = false
	t.raw.Read(t.pass1) // an error means closed, by our own stop
}

func (t *turn) step(fd uintptr) bool {
	if !t.parked {
		t.parked = true
		t.buf = [8]byte{0: 1, 7: 1} // not zero in either byte order
		_, err := unix.Write(int(fd), t.buf[:])
		return err != nil
	}
	unix.Read(int(fd), t.buf[:])
	return true
}

func (t *turn) close() {
	if t.file != nil {
		t.file.Close()
	}
}
