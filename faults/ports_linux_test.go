package faults

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// both runs f with stock's listener and with fastudp's.
func both(t *testing.T, f func(t *testing.T, directive string)) {
	for name, directive := range map[string]string{"stock": "", "fastudp": "fastudp 4"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, directive)
		})
	}
}

// take has the test, not the child, hold a UDP port in the child's namespace.
func (c *child) take(t *testing.T, addr string, reuse bool) net.PacketConn {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if reuse {
			raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		}
		return err
	}}
	var p net.PacketConn
	var err error
	c.inside(t, func() { p, err = lc.ListenPacket(context.Background(), "udp", addr) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestPortTaken starts on two addresses, of which somebody else has the second one's port: the start
// fails, and on the first nothing is left. When the port is free again the start succeeds.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"alone", "shared by another user"} {
		t.Run(how, func(t *testing.T) {
			both(t, func(t *testing.T, directive string) {
				c := newChild(t)
				shared := how != "alone"
				holder := c.take(t, "127.0.0.2:5300", shared)
				if shared {
					c.must(t, order{Do: "become nobody"})
				}
				corefile := block("bind 127.0.0.1 127.0.0.2", directive)
				_, err := c.do(t, order{Do: "start", Corefile: corefile})
				if !strings.Contains(err, "127.0.0.2:5300") || !strings.Contains(err, "address already in use") {
					t.Errorf("the error does not name the cause and the address: %q", err)
				}
				if directive == "" {
					return // stock leaves the sockets to the collector, and clients without answers till then
				}
				eventually(t, "no socket is left but the holder's", func() bool { return c.sockets(t, port) == 1 })
				holder.Close()
				c.start(t, corefile)
				for _, addr := range twoAddresses {
					c.mustAnswer(t, addr)
				}
			})
		})
	}
}

// TestPortTakenReload reloads to an address whose port somebody else has: the old server goes on.
func TestPortTakenReload(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, directive string) {
		c := newChild(t)
		c.start(t, block("bind 127.0.0.1", directive))
		had, descriptors := c.sockets(t, port), len(c.descriptors(t))
		holder := c.take(t, "127.0.0.2:5300", false)
		more := block("bind 127.0.0.1 127.0.0.2", directive)
		_, err := c.do(t, order{Do: "reload", Corefile: more})
		if !strings.Contains(err, "127.0.0.2:5300") || !strings.Contains(err, "address already in use") {
			t.Errorf("the error does not name the cause and the address: %q", err)
		}
		if directive == "" {
			return
		}
		c.mustAnswer(t, oneAddress)
		const caddys = 2 // what it has duplicated, it keeps, with stock too
		eventually(t, "sockets and descriptors are as many as before", func() bool {
			c.look(t)
			return c.sockets(t, port) == had+1 && len(c.descriptors(t)) <= descriptors+caddys
		})
		holder.Close()
		c.must(t, order{Do: "reload", Corefile: more})
		for _, addr := range twoAddresses {
			c.mustAnswer(t, addr)
		}
	})
}

// TestPortPrivileged has a user without privileges ask for port 53. TCP fails before UDP has a chance to.
func TestPortPrivileged(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, directive string) {
		c := newChild(t)
		c.must(t, order{Do: "become nobody"})
		_, err := c.do(t, order{Do: "start", Corefile: fmt.Sprintf(".:53 {\n bind 127.0.0.1\n %s\n answers\n}\n", directive)})
		if !strings.Contains(err, "127.0.0.1:53") || !strings.Contains(err, "permission denied") {
			t.Errorf("the error does not name the cause and the address: %q", err)
		}
		if n := c.sockets(t, 53); n != 0 {
			t.Errorf("%d sockets are left", n)
		}
	})
}
