package faults

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif.
type notification struct {
	ID    uint64
	PID   uint32
	Flags uint32
	Call  int32
	Arch  uint32
	IP    uint64
	Args  [6]uint64
}

// verdict is struct seccomp_notif_resp.
type verdict struct {
	ID    uint64
	Val   int64
	Errno int32
	Flags uint32
}

// The ioctls by which the test hears of calls and says what becomes of them.
const (
	notifyReceive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	notifySend    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
)

// supervise decides the n-th call and every other from now on until the child ends: refuse says with
// which error it fails, 0 for none.
func (c *child) supervise(t *testing.T, call uintptr, refuse func(n int) unix.Errno) {
	t.Helper()
	r, failed := c.do(t, order{Do: "refuse", Refuse: []refusal{{Call: call}}})
	if failed != "" {
		t.Skipf("this kernel lets no other process decide: %s", failed)
	}
	process, err := unix.PidfdOpen(c.cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(process)
	listener, err := unix.PidfdGetfd(process, r.FD, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer unix.Close(listener)
		for n := 0; ; {
			var asked notification
			poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
			if _, err := unix.Poll(poll, -1); err == unix.EINTR {
				continue
			} else if err != nil || poll[0].Revents&unix.POLLIN == 0 {
				return // the child has ended
			}
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), notifyReceive, uintptr(unsafe.Pointer(&asked))); errno != 0 {
				continue // the call was given up
			}
			v := verdict{ID: asked.ID}
			v.Errno = -int32(refuse(n))
			if n++; v.Errno == 0 {
				v.Flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
			}
			unix.Syscall(unix.SYS_IOCTL, uintptr(listener), notifySend, uintptr(unsafe.Pointer(&v)))
		}
	}()
}

// TestErrnoPasses has calls fail for a while, every other time, or interrupted: then all is well again.
func TestErrnoPasses(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]uintptr{"recvmmsg": unix.SYS_RECVMMSG, "sendmmsg": unix.SYS_SENDMMSG} {
		for _, errno := range []unix.Errno{unix.EINTR, unix.EPERM, unix.ENOBUFS, unix.ENOMEM, unix.ENETDOWN} {
			t.Run(name+" "+unix.ErrnoName(errno), func(t *testing.T) {
				t.Parallel()
				const fail, alternate = 30, 100 // so many calls fail, and of so many every other
				c := newChild(t)
				c.start(t, block("bind 127.0.0.1", "fastudp 2", "prometheus"))
				c.mustAnswer(t, oneAddress)
				before := c.look(t).Metrics
				var failed atomic.Int64
				c.supervise(t, call, func(n int) unix.Errno {
					if n < fail || n < alternate && n%2 == 0 {
						failed.Add(1)
						return errno
					}
					return 0
				})
				// Until the calls fail no more, some queries get no answer.
				const want = fail + (alternate-fail)/2
				eventually(t, "the calls fail no more", func() bool {
					c.ask(t, oneAddress, 20, 5*time.Millisecond)
					return failed.Load() >= want
				})
				time.Sleep(200 * time.Millisecond) // the longest that a reader rests after a failure is 100 ms
				if got := c.ask(t, oneAddress, 200, patience); got != 200 {
					t.Errorf("%d of 200 queries are answered when all is well again", got)
				}
				metric := map[uintptr]string{unix.SYS_RECVMMSG: "fastudp_receive_errors_total ", unix.SYS_SENDMMSG: "fastudp_send_errors_total "}[call] + unix.ErrnoName(errno)
				counted := c.look(t).Metrics[metric] - before[metric]
				if errno == unix.EINTR {
					if counted != 0 {
						t.Errorf("interrupted calls count as %v errors", counted)
					}
				} else if counted != want {
					t.Errorf("%v errors are counted of %d", counted, want)
				}
				c.must(t, order{Do: "stop"})
			})
		}
	}
}
