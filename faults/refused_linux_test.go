package faults

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRefusedAddress: an error names the address also if it comes when the sockets are open.
func TestRefusedAddress(t *testing.T) {
	t.Parallel()
	noIPv6 := refusal{Call: unix.SYS_SOCKET, Errno: unix.EAFNOSUPPORT, Args: map[int]int{0: unix.AF_INET6}}
	for _, v := range []struct {
		option string
		refuse []refusal
	}{
		{"IPV6_RECVPKTINFO", []refusal{setsockopt(unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, unix.EPERM)}},
		{"IP_PKTINFO", []refusal{noIPv6, setsockopt(unix.IPPROTO_IP, unix.IP_PKTINFO, unix.EPERM)}},
	} {
		t.Run(v.option, func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			c.must(t, order{Do: "refuse", Refuse: v.refuse})
			_, err := c.do(t, order{Do: "start", Corefile: block("fastudp 4")})
			if !strings.Contains(err, v.option) || !strings.Contains(err, ":5300") {
				t.Errorf("the error is %q, expected one about %s of :5300", err, v.option)
			}
			eventually(t, "no socket is left", func() bool { return c.sockets(t, port) == 0 })
		})
	}
}

// TestRefusedBuffers: without a say in the sizes of buffers it serves as stock does, and tells.
func TestRefusedBuffers(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	var rs []refusal
	for _, option := range []int{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF} {
		rs = append(rs, setsockopt(unix.SOL_SOCKET, option, unix.EPERM))
	}
	c.must(t, order{Do: "refuse", Refuse: rs})
	c.start(t, block("bind 127.0.0.1", "fastudp 4 {\n read_buffer 8MiB\n write_buffer 8MiB\n }"))
	c.mustAnswer(t, oneAddress)
	if w := c.warned(); len(w) != 2 || !strings.Contains(w[0], "read_buffer") || !strings.Contains(w[1], "write_buffer") {
		t.Errorf("it says %q, expected a line for each buffer", w)
	}
}

// TestRefusedForEver interrupts all calls for ever: a filter may, and the process must not freeze by it.
func TestRefusedForEver(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]uintptr{"recvmmsg": unix.SYS_RECVMMSG, "sendmmsg": unix.SYS_SENDMMSG} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			c.start(t, block("bind 127.0.0.1", "fastudp 2", "prometheus"))
			c.mustAnswer(t, oneAddress)
			c.must(t, order{Do: "refuse", Refuse: []refusal{{Call: call, Errno: unix.EINTR}}})
			c.ask(t, oneAddress, 200, time.Millisecond)
			if cpu := c.idleCPU(t); cpu > spinning {
				t.Errorf("it uses %v of CPU time in two seconds", cpu)
			}
			c.must(t, order{Do: "stop"})
		})
	}
}
