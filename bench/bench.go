package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fastudp/fastudp/internal/child"
)

// bench is what all sections use.
type bench struct {
	options
	dir      string
	cpus     cpus
	shared   bool // the server of section two shares its CPUs with the load
	servers  map[string]server
	input    input
	upstream *child.Child
	veth     *veth // nil: not possible here
	left     []string
	peak     map[string]float64 // q/s of stock by work, for section latency
	sequence int
}

func newBench(ctx context.Context, o options, dir string) (*bench, error) {
	all, err := splitInts(os.Getenv(cpusEnv))
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, dir: dir, cpus: layout(all), shared: len(all) < 3, servers: make(map[string]server), peak: make(map[string]float64)}
	for _, s := range servers(dir, self) {
		if why := s.missing(); why != "" {
			b.leave("%s: %s", s.name, why)
			continue
		}
		b.servers[s.name] = s
	}
	if len(all) < 2 {
		b.leave("a CPU for the load alone: there is one CPU")
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	resolver := fmt.Sprintf("127.0.0.1:%d", port)
	fmt.Println("writing zones and questions")
	if b.input, err = newInput(dir, resolver, rootKeyBits); err != nil {
		return nil, err
	}
	if b.upstream, err = child.Start(child.Options{Name: "upstream", CPUs: b.cpus.load}, self, "upstream", resolver); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bench) close() {
	b.upstream.Stop() // it ends by our signal, which Stop calls an error
	if b.veth != nil {
		b.veth.close()
	}
}

// leave notes what is left out.
func (b *bench) leave(format string, args ...any) {
	note := fmt.Sprintf(format, args...)
	if !slices.Contains(b.left, note) {
		fmt.Println("left out:", note)
		b.left = append(b.left, note)
	}
}

// load is how a server is asked.
type load struct {
	name   string
	rate   float64 // offered; 0: a closed loop, which goes as fast as the server lets it
	netns  bool    // over the veth pair
	awake  bool    // the server's CPUs never idle
	least  time.Duration
	ask    func(ctx context.Context, b *bench, p place, w work, d time.Duration) (outcome, error)
	calls  bool    // count the server's system calls, in a short extra run
	point  float64 // where it is on a chart's axis
	series string  // loads of one series are one line of a chart
}

// outcome is what the load generator saw.
type outcome struct {
	Sent, Answered, Lost      uint64
	Seen                      uint64 // of the answered, those that the generator has seen, if it does not see all
	Late                      uint64 // sent later than due: the generator could not keep up
	Elapsed                   time.Duration
	RequestSize, ResponseSize float64
	Latency                   *latency
}

// latency is in whole nanoseconds; the percentiles are 0 if the generator does not know them.
type latency struct{ Average, Min, Max, StdDev, P50, P99, P999 time.Duration }

// trial is one measurement of a section, done once a round.
type trial struct {
	work   work
	load   load
	server server
	cpus   []int
}

// measure starts the server, warms it up, asks and reads what it has used meanwhile.
func (b *bench) measure(ctx context.Context, t trial) (sample, error) {
	p := place{host: "127.0.0.1", cpus: t.cpus}
	if t.load.netns {
		p.host, p.netns = vethServer, b.veth.server
		p.port, p.metrics, p.spare = 5300, 5380, 5301
	}
	for _, port := range []*int{&p.port, &p.metrics, &p.spare} {
		if *port == 0 {
			n, err := freePort()
			if err != nil {
				return sample{}, err
			}
			*port = n
		}
	}
	c, err := b.start(ctx, t.server, p, t.work)
	if err != nil {
		return sample{}, err
	}
	defer c.Stop() // some servers end by the signal, which Stop calls an error
	if t.work.fill != "" {
		if _, err := dnsperf(ctx, p, t.work, 1, 10*time.Second, t.work.fill, true); err != nil {
			return sample{}, err
		}
	}
	if t.load.awake {
		for _, cpu := range t.cpus {
			c, err := keepAwake(cpu)
			if err != nil {
				return sample{}, err
			}
			defer c.Stop()
		}
	}
	length := max(b.time, t.load.least)
	warm := t.work
	if warm.fill != "" {
		warm.questions = warm.fill // what shall miss later must not be known yet
	}
	if _, err := t.load.ask(ctx, b, p, warm, min(max(length/4, 300*time.Millisecond), time.Second)); err != nil {
		return sample{}, err
	}

	// The counters are read outside the usage, for the server works to tell them.
	var before, after reading
	if before.counters, err = countersOf(t.server, p); err != nil {
		return sample{}, err
	}
	if err := before.read(c, p); err != nil {
		return sample{}, err
	}
	o, err := t.load.ask(ctx, b, p, t.work, length)
	if err != nil {
		return sample{}, err
	}
	if err := after.read(c, p); err != nil {
		return sample{}, err
	}
	if after.counters, err = countersOf(t.server, p); err != nil {
		return sample{}, err
	}
	if o.Answered == 0 {
		return sample{}, fmt.Errorf("no query was answered\n%s", c.Log())
	}
	s := newSample(t, o, before, after)
	if t.load.calls {
		if s.AllCalls, err = b.systemCalls(ctx, c, p, t); err != nil {
			b.leave("system calls of all kinds: %v", err)
		}
	}
	return s, ctx.Err()
}

// reading is what a server has used and counted so far.
type reading struct {
	usage    child.Usage
	busy     time.Duration // of the server's CPUs
	at       time.Time
	counters counters
}

// read reads all but the counters.
func (r *reading) read(c *child.Child, p place) (err error) {
	r.at = time.Now()
	if r.usage, err = usage(c); err == nil {
		r.busy, err = busy(p.cpus)
	}
	return err
}

func countersOf(s server, p place) (counters, error) {
	if !s.fastudp {
		return counters{}, nil
	}
	return scrape(p)
}

// start starts the server and waits until it answers.
func (b *bench) start(ctx context.Context, s server, p place, w work) (*child.Child, error) {
	b.sequence++
	dir := filepath.Join(b.dir, fmt.Sprintf("run%d", b.sequence))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	argv, err := s.command(dir, p, w)
	if err != nil {
		return nil, err
	}
	c, err := child.Start(child.Options{
		Name: s.name, CPUs: p.cpus, Dir: dir, Netns: p.netns, Env: append([]string{fmt.Sprintf("GOMAXPROCS=%d", len(p.cpus))}, s.env...),
	}, argv...)
	if err != nil {
		return nil, err
	}
	if err := b.awaitAnswer(ctx, c, p, w); err != nil {
		c.Stop()
		return nil, fmt.Errorf("%s does not answer: %w\n%s", s.name, err, c.Log())
	}
	return c, nil
}

func (b *bench) awaitAnswer(ctx context.Context, c *child.Child, p place, w work) error {
	q, err := w.wire(1)
	if err != nil {
		return err
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		select {
		case <-c.Done():
			return errors.New("it has ended")
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if err = askOnce(ctx, p, q[0]); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

// askOnce returns when a query has an answer.
func askOnce(ctx context.Context, p place, query []byte) error {
	conn, err := dialIn(ctx, p.netns, "udp4", p.addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := conn.Write(query); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 4096))
	return err
}

const (
	lowestPort  = 20000
	highestPort = 32000 // above, the system takes the ports of clients
)

var lastPort = lowestPort + os.Getpid()%5000

// freePort is free for UDP and TCP on loopback now. It goes round, so that no port comes again soon.
func freePort() (int, error) {
	for range highestPort - lowestPort {
		if lastPort++; lastPort > highestPort {
			lastPort = lowestPort
		}
		u, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", lastPort))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp4", u.LocalAddr().String())
		u.Close()
		if err != nil {
			continue
		}
		l.Close()
		return lastPort, nil
	}
	return 0, fmt.Errorf("no free port from %d to %d", lowestPort, highestPort)
}

func (p place) addrPort() netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(p.host), uint16(p.port))
}

// pick is the servers with the names, those that there are.
func (b *bench) pick(names ...string) (out []server) {
	for _, n := range names {
		if s, ok := b.servers[n]; ok {
			out = append(out, s)
		}
	}
	return out
}

// needVeth makes the veth pair that the floods go over, unless there is one.
func (b *bench) needVeth(ctx context.Context) (err error) {
	if b.veth == nil {
		b.veth, err = newVeth(ctx)
	}
	return err
}

// machine is where the measurement took place.
func (b *bench) machine() []string {
	var out []string
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpu)) {
		if name, ok := strings.CutPrefix(line, "model name\t: "); ok {
			out = append(out, fmt.Sprintf("%s, %d CPUs usable", strings.TrimSpace(name), len(strings.Split(os.Getenv(cpusEnv), ","))))
			break
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	out = append(out, "Linux "+strings.TrimSpace(string(kernel)))
	busy, _ := os.ReadFile("/proc/loadavg")
	return append(out, "load average when done: "+strings.Join(strings.Fields(string(busy))[:1], ""))
}
