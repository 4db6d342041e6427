package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastudp/fastudp/internal/load"
)

// change is one reload of a trial.
type change struct {
	name    string
	sockets int // 0: without the directive
	options string
	bind    string // further addresses
	extra   string // before the first block
	refusal string // what the log says if the Corefile is to be refused
}

const quickReloads = 100

// reload: a steady load while the Corefile changes in every way, then by the reload plugin, then
// many times in a row. Stock has multisocket in place of the directive.
func reload(t *trial) error {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer taken.Close()
	takenPort := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	changes := []change{
		{name: "nothing", sockets: 4},
		{name: "4 to 2 sockets", sockets: 2},
		{name: "2 to 8 sockets", sockets: 8},
		{name: "8 to 4 sockets", sockets: 4},
		{name: "a Corefile that does not parse", sockets: 4, extra: "nonsense.test:{DNS} {\n no-such-plugin\n}\n", refusal: "no-such-plugin"},
		{name: "directive removed", sockets: 0},
		{name: "directive added", sockets: 4},
		{name: "options", sockets: 4, options: "batch 16\n fairness_cap 32\n read_buffer 1MiB\n steer cpu"},
		{name: "address added", sockets: 4, bind: "127.0.0.2"},
		{name: "a port that is taken", sockets: 2, extra: "taken.test:" + takenPort + " {\n bind 127.0.0.1\n whoami\n}\n", refusal: "address already in use"},
		{name: "address removed", sockets: 4},
	}
	first := changes[0]
	if err := t.start(t.corefile(first)); err != nil {
		return err
	}
	s := t.server

	cpuBefore, err := t.cpuEach()
	if err != nil {
		return err
	}
	stop := t.steady(t.rate)
	drops := newKernelDrops(s.addr.Port())
	defer drops.stop()
	var refusals int
	for i, begin := 0, time.Now(); time.Since(begin) < t.length || i < len(changes); i++ {
		if t.ctx.Err() != nil {
			break
		}
		c := changes[i%len(changes)]
		next := time.Now().Add(2 * time.Second)
		want := reloaded
		if c.refusal != "" {
			want = refused
		}
		drops.set(c.name)
		if err := t.reload(t.corefile(c), want); err != nil {
			stop()
			return fmt.Errorf("reload %d, %s: %w", i, c.name, err)
		}
		if c.refusal != "" {
			refusals++
			last := s.Log()[strings.LastIndex(s.Log(), refused):]
			t.promise(strings.Contains(last, c.refusal), "%s is refused with the reason in the log: %s", c.name, last)
		}
		t.sleep(time.Until(next))
	}
	reloads := strings.Count(s.Log(), reloaded)
	r, err := stop()
	if err != nil {
		return err
	}
	drops.stop()
	t.figure("reloads / refused", "%d / %d", reloads, refusals)
	t.losses("SIGUSR1", r, drops)

	if err := t.byPlugin(first); err != nil {
		return err
	}
	return t.quick(first, cpuBefore)
}

// corefile is that of a change.
func (t *trial) corefile(c change) string {
	directive := ""
	switch {
	case c.sockets == 0:
	case t.fast:
		directive = fmt.Sprintf("fastudp %d {\n %s\n }", c.sockets, c.options)
	default:
		directive = fmt.Sprintf("multisocket %d", c.sockets)
	}
	return fmt.Sprintf("%s.:{DNS} {\n bind 127.0.0.1 %s\n %s\n whoami\n prometheus {METRICS}\n errors\n}\n", c.extra, c.bind, directive)
}

// steady asks at a rate until stop.
func (t *trial) steady(rate float64) (stop func() (load.Result, error)) {
	return t.steadyAt(load.Config{Target: t.server.addr, Sockets: 32, Rate: rate, Questions: whoamiQuestion()})
}

func (t *trial) steadyAt(c load.Config) (stop func() (load.Result, error)) {
	var r load.Result
	var err error
	c.Timeout, c.Duration = 5*time.Second, 24*time.Hour
	quit := make(chan struct{})
	c.Stop = quit
	var wg sync.WaitGroup
	wg.Go(func() { r, err = load.Run(t.ctx, c) })
	return sync.OnceValues(func() (load.Result, error) { close(quit); wg.Wait(); return r, err })
}

func (t *trial) losses(by string, r load.Result, drops *kernelDrops) {
	t.figure(by+": queries", "%d", r.Sent)
	t.figure(by+": lost / answered twice / strays", "%d / %d / %d", r.Lost, r.Duplicate, r.Stray)
	t.figure(by+": median / longest latency", "%v / %v", time.Duration(r.Latency.ValueAtQuantile(50)).Round(10*time.Microsecond), time.Duration(r.Latency.Max()).Round(time.Millisecond))
	t.figure(by+": dropped for a full receive queue of the server / of ours", "%s / %d", drops, r.Overrun)
	t.promise(r.Lost <= r.Overrun, "%s: no query is lost: %d of %d are; for a full receive queue the kernel dropped %s", by, r.Lost, r.Sent, drops)
	t.promise(r.Duplicate+r.Stray == 0, "%s: no query is answered twice: %d are, %d strays", by, r.Duplicate, r.Stray)
}

// kernelDrops adds up what the kernel drops at the sockets on a port because their receive queues are
// full, by the reload during which it did. A socket's count goes with the socket, so it looks often.
type kernelDrops struct {
	port   uint16
	during atomic.Pointer[string]
	stop   func()

	sum   uint64
	names []string // of by, in the order of the first drop
	by    map[string]uint64
}

func newKernelDrops(port uint16) *kernelDrops {
	k := &kernelDrops{port: port, by: map[string]uint64{}}
	k.set("the start")
	quit := make(chan struct{})
	var wg sync.WaitGroup
	seen := make(map[string]uint64) // by inode
	for _, s := range udpSockets(port) {
		seen[s.inode] = s.drops
	}
	look := func() {
		for _, s := range udpSockets(k.port) {
			if n := s.drops - seen[s.inode]; s.drops > seen[s.inode] {
				k.count(*k.during.Load(), n)
			}
			seen[s.inode] = s.drops
		}
	}
	wg.Go(func() {
		for {
			look()
			select {
			case <-quit:
				look()
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	k.stop = sync.OnceFunc(func() { close(quit); wg.Wait() })
	return k
}

func (k *kernelDrops) set(name string) { k.during.Store(&name) }

func (k *kernelDrops) count(name string, n uint64) {
	k.sum += n
	if k.by[name] == 0 {
		k.names = append(k.names, name)
	}
	k.by[name] += n
}

// String is for after stop.
func (k *kernelDrops) String() string {
	b := []string{strconv.FormatUint(k.sum, 10)}
	for _, name := range k.names {
		b = append(b, fmt.Sprintf("%s: %d", name, k.by[name]))
	}
	return strings.Join(b, ", ")
}

type udpSocket struct {
	inode string
	queue uint64 // bytes that wait to be read
	drops uint64
}

// udpSockets are the UDP sockets on a port, from /proc/net/udp.
func udpSockets(port uint16) []udpSocket {
	var all []udpSocket
	suffix := fmt.Sprintf(":%04X", port)
	for _, name := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		b, _ := os.ReadFile(name)
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) >= 13 && strings.HasSuffix(f[1], suffix) {
				drops, _ := strconv.ParseUint(f[12], 10, 64)
				_, hex, _ := strings.Cut(f[4], ":")
				queue, _ := strconv.ParseUint(hex, 16, 64)
				all = append(all, udpSocket{f[9], queue, drops})
			}
		}
	}
	return all
}

// byPlugin has the reload plugin find the Corefile changed. It looks every 2 s and some more.
func (t *trial) byPlugin(c change) error {
	with := func(sockets int) string {
		c.sockets = sockets
		return strings.Replace(t.corefile(c), "errors", "errors\n reload 2s 1s", 1)
	}
	if err := t.reload(with(4), reloaded); err != nil {
		return err
	}
	stop := t.steady(t.rate)
	drops := newKernelDrops(t.server.addr.Port())
	defer drops.stop()
	for _, sockets := range []int{2, 4, 3} {
		drops.set(fmt.Sprint("to ", sockets, " sockets"))
		before := strings.Count(t.server.Log(), reloaded)
		err := t.server.write(with(sockets))
		if err == nil {
			err = t.eventually("the reload plugin reloads", func() bool { return strings.Count(t.server.Log(), reloaded) > before })
		}
		if err != nil {
			stop()
			return err
		}
		t.sleep(time.Second)
	}
	r, err := stop()
	if err != nil {
		return err
	}
	drops.stop()
	t.losses("plugin", r, drops)
	return t.reload(t.corefile(c), reloaded)
}

// holdings is what a leak would add to.
type holdings struct {
	fds, threads, sockets int
	goroutines            float64
}

func (t *trial) holdings() (holdings, error) {
	x, _, err := t.look()
	if err != nil {
		return holdings{}, err
	}
	u, err := t.server.Usage()
	return holdings{u.FDs, u.Threads, len(udpSockets(t.server.addr.Port())), x.goroutines}, err
}

// The second looks may find so many more: a scrape's connection, threads for system calls.
const (
	moreFDs        = 4
	moreThreads    = 6
	moreGoroutines = 20
)

// quick reloads many times in a row and looks for what is left behind, and for queries that have become dearer.
func (t *trial) quick(c change, cpuBefore float64) error {
	settle := func() (holdings, error) { t.sleep(7 * time.Second); return t.holdings() } // old servers stop for up to 5 s
	if err := t.reload(t.corefile(c), reloaded); err != nil {
		return err
	}
	before, err := settle()
	if err != nil {
		return err
	}
	stop := t.steady(min(t.rate, 1000))
	drops := newKernelDrops(t.server.addr.Port())
	defer drops.stop()
	for i := range quickReloads {
		if err := t.reload(t.corefile(c), reloaded); err != nil {
			stop()
			return fmt.Errorf("quick reload %d: %w", i, err)
		}
		if t.ctx.Err() != nil {
			break
		}
	}
	r, err := stop()
	if err != nil {
		return err
	}
	drops.stop()
	t.losses("quick", r, drops)
	after, err := settle()
	if err != nil {
		return err
	}
	cpuAfter, err := t.cpuEach()
	if err != nil {
		return err
	}
	t.figure(fmt.Sprintf("descriptors before / after %d reloads", quickReloads), "%d / %d", before.fds, after.fds)
	t.figure("threads", "%d / %d", before.threads, after.threads)
	t.figure("goroutines", "%.0f / %.0f", before.goroutines, after.goroutines)
	t.figure("UDP sockets", "%d / %d", before.sockets, after.sockets)
	t.figure("CPU for a query before / after all reloads", "%.2f us / %.2f us", cpuBefore, cpuAfter)
	t.promise(after.fds <= before.fds+moreFDs, "no descriptor is left behind: %d before, %d after", before.fds, after.fds)
	t.promise(after.threads <= before.threads+moreThreads, "no thread is left behind: %d before, %d after", before.threads, after.threads)
	t.promise(after.goroutines <= before.goroutines+moreGoroutines, "no goroutine is left behind: %.0f before, %.0f after", before.goroutines, after.goroutines)
	t.promise(after.sockets == before.sockets, "no socket is left behind: %d before, %d after", before.sockets, after.sockets)
	t.promise(cpuAfter <= 1.3*cpuBefore, "queries cost the same after many reloads: %.2f us before, %.2f us after", cpuBefore, cpuAfter)
	return nil
}

// cpuEach is the server's microseconds for each query at the trial's rate, the least of some tries:
// other work on the machine can only add to it.
func (t *trial) cpuEach() (float64, error) {
	least := 0.0
	for range 5 {
		var m meter
		if err := m.run(t, load.Config{Sockets: 32, Rate: t.rate, Duration: min(2*time.Second, t.length/10)}); err != nil {
			return 0, err
		}
		if each := m.cpuEach(); least == 0 || each < least {
			least = each
		}
	}
	return least, nil
}
