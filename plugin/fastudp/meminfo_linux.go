package fastudp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// getMeminfo reads SO_MEMINFO, which x/sys has no function for.
func getMeminfo(fd int, info *[9]uint32) error {
	size := uint32(unsafe.Sizeof(*info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
