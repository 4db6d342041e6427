package fastudp

import (
	"bytes"
	stdlog "log"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestWatch checks what is said of losses, and how often.
func TestWatch(t *testing.T) {
	begin := time.Now()
	quiet := func() losses {
		return losses{received: []uint64{1000, 1000}, kernel: []uint64{7, 0}, room: "read_buffer (4096 bytes now)"}
	}
	for _, c := range []struct {
		name   string
		steer  Steer
		change func(n *losses)
		want   string // nothing if empty
	}{
		{"nothing new", SteerHash, func(n *losses) {}, ""},
		{"even", SteerHash, func(n *losses) { n.kernel[0] += 5; n.received[0] += 100; n.received[1] += 90 }, "dropped 5 queries because a receive queue was full: " + power(2) + ", or raise read_buffer (4096 bytes now)"},
		{"uneven", SteerHash, func(n *losses) { n.kernel[1] += 5; n.received[0] += 9; n.received[1] += 100 }, "dropped 5 queries because the receive queue of socket 1 was full while other sockets are idle: steer random"},
		{"uneven already random", SteerRandom, func(n *losses) { n.kernel[1] += 5; n.received[1] += 100 }, "raise read_buffer"},
		{"inflight", SteerHash, func(n *losses) { n.inflight = 3 }, "3 queries were dropped at the bound, max_inflight 2000: see whether an upstream is slow, or raise max_inflight"},
		{"unusual", SteerHash, func(n *losses) { n.unusual = 3 }, "3 messages that are not ordinary queries were dropped because too many of them wait for the stock server: see coredns_fastudp_unusual_total for their kind, keep their senders out, or raise max_inflight"},
		{"panic", SteerHash, func(n *losses) { n.panics = 1 }, "1 messages made the parser panic"},
		{"send", SteerHash, func(n *losses) { n.sends = map[string]uint64{"ENETUNREACH": 2} }, "refused to send 2 responses: ENETUNREACH (no route to the client: see the routing table)"},
		{"receive", SteerHash, func(n *losses) { n.receives = map[string]uint64{"ENOMEM": 4} }, "reading failed 4 times: ENOMEM (the kernel is short of memory)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &watcher{name: "dns://:53", opts: Options{Steer: c.steer, MaxInflight: 2000}, told: make(map[string]telling)}
			w.begin(quiet())
			lossy := quiet()
			c.change(&lossy)
			got := w.look(begin, lossy)
			if c.want == "" {
				if len(got) != 0 {
					t.Errorf("said %q", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], c.want) || !strings.HasPrefix(got[0], "dns://:53: ") {
				t.Fatalf("said %q, want %q", got, c.want)
			}
			// Twice the loss each ten seconds: the next line comes after a minute and counts all since the first.
			var lines []string
			at := begin
			for range 6 {
				at = at.Add(10 * time.Second)
				c.change(&lossy)
				lines = append(lines, w.look(at, lossy)...)
			}
			if strings.HasPrefix(c.name, "even") || strings.HasPrefix(c.name, "uneven") {
				if len(lines) != 1 || !strings.Contains(lines[0], "dropped 30 queries") {
					t.Errorf("said %q in the next minute", lines)
				}
			} else if len(lines) != 0 {
				t.Errorf("said %q though nothing new was lost", lines)
			}
		})
	}
}

// TestWatchKinds checks that one kind of loss does not silence another.
func TestWatchKinds(t *testing.T) {
	w := &watcher{told: make(map[string]telling)}
	now := time.Now()
	var lines []string
	for i, n := range []losses{{}, {inflight: 1}, {inflight: 2, unusual: 1}, {inflight: 2, unusual: 2, sends: map[string]uint64{"EPERM": 1, "EINVAL": 1}}} {
		lines = append(lines, w.look(now.Add(time.Duration(i)*time.Second), n)...)
	}
	kinds := []string{"at the bound", "not ordinary", "EINVAL", "EPERM"}
	if len(lines) != len(kinds) || slices.ContainsFunc(kinds, func(k string) bool {
		return !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, k) })
	}) {
		t.Errorf("said %q", lines)
	}
}

// TestWatchLogs checks that a serving listener looks at its own counters and logs.
func TestWatchLogs(t *testing.T) {
	out := watchLog(t)
	inst := startCorefile(t, ".:0 {\nbind 127.0.0.1\nportable 2\nwhoami\n}")
	addr := inst.Servers()[0].LocalAddr().String()
	l := serving(t, addr)
	time.Sleep(20 * time.Millisecond)
	for _, e := range l.engines {
		e.count.drops[dropInflight].Add(2)
	}
	waitLine(t, out, "dns://"+addr+": 4 queries were dropped at the bound, max_inflight 10000")
}

// watchLog has listeners look all the time, and is what they log.
func watchLog(t *testing.T) *safeBuffer {
	period := watchPeriod
	watchPeriod = time.Millisecond
	out := new(safeBuffer)
	stdlog.SetOutput(out)
	t.Cleanup(func() {
		watchPeriod = period
		stdlog.SetOutput(os.Stderr)
	})
	return out
}

// serving waits for the listener with this address.
func serving(t *testing.T, addr string) *listener {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, l := range live.list() {
			if l.local.String() == addr {
				<-l.started
				return l
			}
		}
	}
	t.Fatal("no listener serves")
	return nil
}

func waitLine(t *testing.T, out *safeBuffer, want string) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !strings.Contains(out.String(), want); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%q is not in the log:\n%s", want, out.String())
		}
	}
}

// safeBuffer is a log that is read while others write.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
