package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// limit lets the child open so many descriptors more. The kernel bounds their numbers, not how many there are.
func (c *child) limit(t *testing.T, more int) {
	t.Helper()
	n := 0
	for ; more >= 0; n++ {
		if _, err := os.Readlink(c.proc(fmt.Sprint("fd/", n))); err != nil {
			more--
		}
	}
	c.setLimit(t, n-1)
}

func (c *child) setLimit(t *testing.T, n int) {
	t.Helper()
	if err := unix.Prlimit(c.cmd.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(n), Max: plenty}, nil); err != nil {
		t.Fatal(err)
	}
}

const plenty = 4096

var twoAddresses = []string{"127.0.0.1:5300", "127.0.0.2:5300"}

// TestNofileStart starts with every number of descriptors from none to enough.
func TestNofileStart(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]struct {
		directive string
		sockets   int
	}{"stock": {"", 2}, "fastudp": {"fastudp 4", 8}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for more := range 2*v.sockets + 8 {
				t.Run(fmt.Sprint("with ", more), func(t *testing.T) {
					t.Parallel()
					startShort(t, block("bind 127.0.0.1 127.0.0.2", v.directive), more, v.sockets, name == "fastudp")
				})
			}
		})
	}
}

// startShort starts a child that can open so many descriptors only.
func startShort(t *testing.T, corefile string, descriptors, sockets int, tidy bool) {
	c := newChild(t)
	c.limit(t, descriptors)
	_, err := c.do(t, order{Do: "start", Corefile: corefile})
	if err != "" {
		if descriptors > 2*sockets+6 { // two for each socket, TCP, and the runtime's poller
			t.Errorf("it should start: %s", err)
		}
		if !strings.Contains(err, "too many open files") || !strings.Contains(err, "127.0.0.") {
			t.Errorf("the error does not name the cause and the address: %s", err)
		}
		if tidy { // stock leaves sockets to the collector
			eventually(t, "no socket is left", func() bool { return c.sockets(t, port) == 0 })
		}
		return
	}
	if descriptors <= 2 {
		t.Errorf("it should not start")
	}
	if n := c.sockets(t, port); n != sockets && len(c.warned()) != 1 {
		t.Errorf("it has %d sockets, not %d, and says %q", n, sockets, c.warned())
	}
	for _, addr := range twoAddresses {
		c.mustAnswer(t, addr)
	}
	c.setLimit(t, plenty)
	c.must(t, order{Do: "stop"})
	if n := c.sockets(t, port); n != 0 && tidy {
		t.Errorf("%d sockets are left after the stop", n)
	}
}

// TestNofileServing takes the descriptors away from a server, which goes on and refuses to reload or
// does with fewer sockets, and gives them back.
func TestNofileServing(t *testing.T) {
	t.Parallel()
	c := newChild(t)
	corefile, larger := block("bind 127.0.0.1 127.0.0.2", "fastudp 4"), block("bind 127.0.0.1 127.0.0.2", "fastudp 6")
	c.start(t, corefile)
	c.mustAnswer(t, twoAddresses[0])
	c.must(t, order{Do: "reload", Corefile: corefile}) // what is opened once is
	want, same := 0, 0
	eventually(t, "a reload has come to rest", func() bool { // its servers start and stop in the background
		c.look(t)
		n := len(c.descriptors(t))
		if same++; n != want || c.sockets(t, port) != 8 {
			want, same = n, 0
		}
		return same > 20
	})
	refused, fewer, reloaded := 0, 0, 0
	for more := range 40 {
		c.limit(t, more)
		said := len(c.logged("[ERROR] plugin/fastudp"))
		_, err := c.do(t, order{Do: "reload", Corefile: larger})
		switch {
		case err == "" && within(time.Second, func() bool { return c.sockets(t, port) == 12 }):
			reloaded++
		case err == "":
			fewer++
			if w := c.logged("[ERROR] plugin/fastudp")[said:]; len(w) == 0 || !strings.Contains(w[0], "127.0.0.") || !strings.Contains(w[0], "too many open files") {
				t.Errorf("a reload with %d descriptors leaves %d sockets and %q in the log", more, c.sockets(t, port), w)
			}
		case !strings.Contains(err, "too many open files"):
			t.Errorf("a reload with %d descriptors fails without the cause: %s", more, err)
		default:
			refused++
		}
		for _, addr := range twoAddresses {
			c.mustAnswer(t, addr)
		}
		if t.Failed() {
			t.Fatalf("that was with %d descriptors\n%s", more, &c.stderr)
		}
		c.setLimit(t, plenty)
		c.must(t, order{Do: "reload", Corefile: corefile})
		eventually(t, "there are 8 sockets after a reload with enough descriptors", func() bool { return c.sockets(t, port) == 8 })
		if !within(patience, func() bool { c.look(t); return len(c.descriptors(t)) <= want }) {
			t.Fatalf("descriptors are not %d again after a reload with %d: %q", want, more, c.descriptors(t))
		}
	}
	t.Logf("%d reloads refused, %d with fewer sockets, %d as asked", refused, fewer, reloaded)
	if refused == 0 || fewer == 0 || reloaded == 0 {
		t.Errorf("%d reloads refused, %d with fewer sockets, %d as asked: one of the three has not been tried", refused, fewer, reloaded)
	}
	c.must(t, order{Do: "stop"})
	if n := c.sockets(t, port); n != 0 {
		t.Errorf("%d sockets are left after the stop", n)
	}
}
