package test

import (
	"os"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func init() {
	// Privileges are a thread's own, but a program that the thread executes has what it had.
	dropCaps = func() error {
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_ADMIN, 0, 0, 0); err != nil {
				return err
			}
		}
		env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, childDropCaps+"=") })
		return unix.Exec("/proc/self/exe", os.Args, env)
	}
}
