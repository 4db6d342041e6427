package faults

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// install is seccomp(2) on all threads, which x/sys has no function for.
func install(prog *unix.SockFprog, ask bool) (fd int, err error) {
	flags := unix.SECCOMP_FILTER_FLAG_TSYNC
	if ask {
		// The runtime's own signals must not interrupt what the test is about to decide.
		flags |= unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags), uintptr(unsafe.Pointer(prog)))
	if errno != 0 {
		return -1, os.NewSyscallError("seccomp", errno)
	}
	if ask {
		return int(r), nil
	}
	if r != 0 {
		return -1, fmt.Errorf("seccomp: thread %d has another filter", r)
	}
	return -1, nil
}
