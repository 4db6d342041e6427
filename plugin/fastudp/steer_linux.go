package fastudp

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// attachSteer tells the kernel how to pick one of the n sockets of c's SO_REUSEPORT group. The program
// belongs to the group, so any of its sockets will do; a result beyond the group's last socket
// falls back to the hash.
func attachSteer(c *net.UDPConn, how Steer, n int) error {
	var ext bpf.Extension
	switch how {
	case SteerCPU:
		ext = bpf.ExtCPUID
	case SteerRandom:
		ext = bpf.ExtRand
	default:
		return control(c, func(fd int) error {
			// ENOENT: there is no program, as it should be.
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_REUSEPORT_BPF, 0); err != nil && err != unix.ENOENT && err != unix.ENOPROTOOPT {
				return os.NewSyscallError("setsockopt SO_DETACH_REUSEPORT_BPF", err)
			}
			return nil
		})
	}
	prog, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadExtension{Num: ext},
		bpf.ALUOpConstant{Op: bpf.ALUOpMod, Val: uint32(n)},
		bpf.RetA{},
	})
	if err != nil {
		return fmt.Errorf("steer %s: %w", how, err)
	}
	filter := make([]unix.SockFilter, len(prog))
	for i, in := range prog {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return control(c, func(fd int) error {
		return os.NewSyscallError("setsockopt SO_ATTACH_REUSEPORT_CBPF",
			unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF,
				&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}))
	})
}
