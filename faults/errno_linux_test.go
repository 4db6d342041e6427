package faults

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const oneAddress = "127.0.0.1:5300"

// ask sends n queries by several flows and returns how many are answered, none of them twice.
func (c *child) ask(t *testing.T, addr string, n int, limit time.Duration) (answered int) {
	t.Helper()
	const flows = 20
	for _, conn := range c.dialBy(t, net.Dialer{}, addr, flows) {
		for i := range n / flows {
			conn.Write(query("a.test", uint16(i)))
		}
		conn.SetReadDeadline(time.Now().Add(limit))
		seen, buf := make(map[uint16]bool), make([]byte, 512)
		for len(seen) < n/flows {
			m, err := conn.Read(buf)
			if err != nil {
				break
			}
			id := uint16(buf[0])<<8 | uint16(buf[1])
			if m < 12 || seen[id] {
				t.Fatalf("question %d is answered twice, or by %x", id, buf[:m])
			}
			seen[id] = true
		}
		answered += len(seen)
		conn.Close()
	}
	return answered
}

// idleCPU is the CPU time that the child uses in two seconds without queries.
func (c *child) idleCPU(t *testing.T) time.Duration {
	t.Helper()
	before := c.look(t)
	time.Sleep(2 * time.Second)
	return c.look(t).CPU - before.CPU
}

// spinning is far more than an idle server uses in two seconds and far less than one that spins.
const spinning = 400 * time.Millisecond

// TestErrnoSend has the kernel refuse every response from some time on.
func TestErrnoSend(t *testing.T) {
	t.Parallel()
	for _, errno := range []unix.Errno{unix.EPERM, unix.ENOBUFS, unix.ENOMEM} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			c.start(t, block("bind 127.0.0.1", "fastudp 2", "prometheus"))
			c.mustAnswer(t, oneAddress)
			before := c.look(t)
			c.must(t, order{Do: "refuse", Refuse: []refusal{{Call: unix.SYS_SENDMMSG, Errno: errno}}})
			const n = 10000
			if got := c.ask(t, oneAddress, n, time.Millisecond); got != 0 {
				t.Errorf("%d answers come through", got)
			}
			name := "fastudp_send_errors_total " + unix.ErrnoName(errno)
			var now report
			eventually(t, "every response is counted", func() bool {
				now = c.look(t)
				received := now.Metrics["fastudp_received_total"] - before.Metrics["fastudp_received_total"]
				return received > n/2 && now.Metrics[name] == received
			})
			if now.Metrics["fastudp_responses_total"] != before.Metrics["fastudp_responses_total"] {
				t.Errorf("responses that were refused count as sent")
			}
			if cpu := c.idleCPU(t); cpu > spinning {
				t.Errorf("it uses %v of CPU time in two idle seconds", cpu)
			}
			if grown := int64(now.Heap) - int64(before.Heap); grown > 4<<20 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
			eventually(t, "but a few idle workers have left", func() bool { return c.look(t).Goroutines-before.Goroutines < 50 })
			if w := c.warned(); len(w) > 1 {
				t.Errorf("it says %q", w)
			}
			begin := time.Now()
			c.must(t, order{Do: "stop"})
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("the stop takes %v", took)
			}
		})
	}
}

// TestErrnoReceive has the kernel refuse every read from some time on.
func TestErrnoReceive(t *testing.T) {
	t.Parallel()
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS, unix.ENETDOWN} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			c.start(t, block("bind 127.0.0.1", "fastudp 2", "prometheus"))
			c.mustAnswer(t, oneAddress)
			c.must(t, order{Do: "refuse", Refuse: []refusal{{Call: unix.SYS_RECVMMSG, Errno: errno}}})
			before := c.look(t)
			c.ask(t, oneAddress, 200, time.Millisecond) // so that there is something to read
			name := "fastudp_receive_errors_total " + unix.ErrnoName(errno)
			eventually(t, "reads that fail are counted", func() bool { return c.look(t).Metrics[name] >= 20 })
			if cpu := c.idleCPU(t); cpu > spinning {
				t.Errorf("it uses %v of CPU time in two seconds", cpu)
			}
			if grown := int64(c.look(t).Heap) - int64(before.Heap); grown > 4<<20 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
			if w := c.warned(); len(w) > 1 {
				t.Errorf("it says %q", w)
			}
			begin := time.Now()
			c.must(t, order{Do: "stop"})
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("the stop takes %v", took)
			}
			if n := c.sockets(t, port); n != 0 {
				t.Errorf("%d sockets are left", n)
			}
		})
	}
}

// TestErrnoNoMmsg starts where the calls for several messages are missing or forbidden.
func TestErrnoNoMmsg(t *testing.T) {
	t.Parallel()
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM, unix.EACCES} {
		for _, calls := range [][]uintptr{{unix.SYS_RECVMMSG, unix.SYS_SENDMMSG}, {unix.SYS_RECVMMSG}, {unix.SYS_SENDMMSG}} {
			for _, bind := range []string{"bind 127.0.0.1 127.0.0.2 ::1", "", "bind 0.0.0.0"} {
				if errno != unix.ENOSYS && (bind != "" || len(calls) == 1) {
					continue // the same way
				}
				t.Run(fmt.Sprint(unix.ErrnoName(errno), len(calls), calls[0], bind), func(t *testing.T) {
					t.Parallel()
					c := newChild(t)
					var rs []refusal
					for _, call := range calls {
						rs = append(rs, refusal{Call: call, Errno: errno})
					}
					c.must(t, order{Do: "refuse", Refuse: rs})
					c.start(t, block(bind, "fastudp 2", "prometheus"))
					for _, addr := range []string{"127.0.0.1:5300", "127.0.0.2:5300", "[::1]:5300"} {
						if addr == "[::1]:5300" && bind == "bind 0.0.0.0" {
							continue
						}
						conn := c.dial(t, addr) // connected: it hears only the address that it asks
						for i := range 20 {
							if roundTrip(conn, query("a.test", uint16(i)), patience) == nil {
								t.Fatalf("no answer from %s\n%s", addr, &c.stderr)
							}
						}
					}
					m := c.look(t).Metrics
					if m["fastudp_reads_total"] != m["fastudp_received_total"] || m["fastudp_sends_total"] != m["fastudp_responses_total"] || m["fastudp_reads_total"] < 40 {
						t.Errorf("it has not served one datagram a call: %v", m)
					}
					w := c.warned()
					if len(w) != 1 || !strings.Contains(w[0], "one datagram for a system call") || !strings.Contains(w[0], errno.Error()) {
						t.Errorf("it says %q, expected one line with the reason", w)
					}
					c.must(t, order{Do: "stop"})
				})
			}
		}
	}
}

// TestErrnoOptions refuses socket options from before the start.
func TestErrnoOptions(t *testing.T) {
	t.Parallel()
	const denied = unix.EPERM
	buffers := []refusal{
		setsockopt(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, denied), setsockopt(unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, denied),
	}
	for _, c := range []struct {
		name   string
		refuse []refusal
		block  string
		fails  string // what the error must say beside the address, if it is one
		warns  string // what the one warning must say, if there is one
	}{
		{"steer", []refusal{setsockopt(unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, denied)},
			"bind 127.0.0.1\n fastudp 4 {\n steer random\n }", "", "steer random is not to be had, the kernel's hash"},
		{"steer unknown", []refusal{setsockopt(unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, unix.ENOPROTOOPT)},
			"bind 127.0.0.1\n fastudp 4 {\n steer cpu\n }", "", "steer cpu is not to be had, the kernel's hash"},
		{"detach unknown", []refusal{setsockopt(unix.SOL_SOCKET, unix.SO_DETACH_REUSEPORT_BPF, unix.ENOPROTOOPT)},
			"bind 127.0.0.1\n fastudp 4", "", ""},
		{"buffers beyond the limit", buffers,
			"bind 127.0.0.1\n fastudp 4 {\n read_buffer 8MiB\n }", "", "read_buffer is"},
		{"SO_REUSEPORT", []refusal{setsockopt(unix.SOL_SOCKET, unix.SO_REUSEPORT, denied)},
			"bind 127.0.0.1\n fastudp 4", "SO_REUSEPORT", ""},
		{"eventfd", []refusal{{Call: unix.SYS_EVENTFD2, Errno: denied}},
			"bind 127.0.0.1\n fastudp 4 {\n fairness_cap 1\n }", "", "eventfd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			child := newChild(t)
			child.start(t, ".:5301 {\n answers\n}\n") // the runtime opens what it needs once
			child.must(t, order{Do: "stop"})
			child.must(t, order{Do: "refuse", Refuse: c.refuse})
			_, err := child.do(t, order{Do: "start", Corefile: block(c.block)})
			if c.fails != "" {
				if !strings.Contains(err, c.fails) || !strings.Contains(err, oneAddress) {
					t.Errorf("the error is %q, expected one about %s of %s", err, c.fails, oneAddress)
				}
				eventually(t, "no socket is left", func() bool { return child.sockets(t, port) == 0 })
				return
			}
			if err != "" {
				t.Fatal(err)
			}
			child.mustAnswer(t, oneAddress)
			if n := child.ask(t, oneAddress, 2000, patience); n != 2000 {
				t.Errorf("%d of 2000 queries are answered", n)
			}
			if n := child.sockets(t, port); n != 4 {
				t.Errorf("%d sockets, not 4", n)
			}
			w := child.warned()
			if (c.warns != "") != (len(w) == 1) || len(w) == 1 && !strings.Contains(w[0], c.warns) {
				t.Errorf("it says %q, expected %q", w, c.warns)
			}
			child.must(t, order{Do: "stop"})
		})
	}
}
