package faults

import (
	"os"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// refusal makes the kernel refuse a system call of this process from now on.
type refusal struct {
	Call  uintptr
	Errno unix.Errno  // 0 has the test decide each call, see supervise
	Args  map[int]int // only calls with these values of their arguments, by index
}

// setsockopt refuses one socket option.
func setsockopt(level, option int, errno unix.Errno) refusal {
	return refusal{Call: unix.SYS_SETSOCKOPT, Errno: errno, Args: map[int]int{1: level, 2: option}}
}

// refuse puts a seccomp filter on all threads. It can not be taken back. If there are calls for the test
// to decide, it returns a descriptor for that.
func refuse(rs []refusal) (fd int, err error) {
	ask := false
	const ( // struct seccomp_data
		callOffset = 0
		argOffset  = 16
	)
	low := uint32(0) // where the low half of an argument is
	if runtime.GOARCH == "s390x" || runtime.GOARCH == "ppc64" || runtime.GOARCH == "mips64" {
		low = 4
	}
	var prog []bpf.Instruction
	for _, r := range rs {
		next := uint8(2*len(r.Args) + 1) // instructions after the first jump
		prog = append(prog, bpf.LoadAbsolute{Off: callOffset, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(r.Call), SkipTrue: next})
		for i, v := range r.Args {
			next -= 2
			prog = append(prog, bpf.LoadAbsolute{Off: argOffset + 8*uint32(i) + low, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(v), SkipTrue: next})
		}
		fate := unix.SECCOMP_RET_ERRNO | uint32(r.Errno)
		if r.Errno == 0 {
			ask, fate = true, unix.SECCOMP_RET_USER_NOTIF
		}
		prog = append(prog, bpf.RetConstant{Val: fate})
	}
	raw, err := bpf.Assemble(append(prog, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		return -1, err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, os.NewSyscallError("prctl", err)
	}
	return install(&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}, ask)
}
