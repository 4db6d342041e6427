package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fastudp/fastudp/internal/child"
	"github.com/fastudp/fastudp/internal/load"
)

// flood: the most queries that whoami can answer, then four times as many; after that clients that
// misbehave. The server has a CPU of its own, and we have another.
func flood(t *trial) error {
	cpus, restore, err := pin()
	if err != nil {
		return err
	}
	defer restore()
	directive := ""
	if t.fast {
		directive = "fastudp 2"
	}
	if err := t.start(fmt.Sprintf(".:{DNS} {\n bind 127.0.0.1\n %s\n whoami\n health {HEALTH}\n prometheus {METRICS}\n errors\n}\n", directive), cpus...); err != nil {
		return err
	}
	s := t.server

	// By turns, so that other work on the machine slows both down.
	const rounds = 6
	var peak, over meter
	var ratios []float64
	probes := newProbes(t)
	before, err := s.scrape()
	if err != nil {
		return err
	}
	for range rounds {
		var p, o meter
		if err := p.run(t, load.Config{Sockets: 8, Outstanding: 100, Duration: t.length / rounds / 4}); err != nil {
			return err
		}
		rate := t.rate
		if rate == 0 {
			rate = 4 * p.perSecond()
		}
		stop := probes.start()
		// The answers may have waited in a queue for long: those beyond the time-out count too.
		err := o.run(t, load.Config{Sockets: 128, Rate: rate, Duration: t.length / rounds * 3 / 4})
		stop()
		if err != nil {
			return err
		}
		peak.add(p)
		over.add(o)
		ratios = append(ratios, p.cpuEach()/o.cpuEach())
	}
	slices.Sort(ratios)
	ratio := ratios[rounds/2]
	after, err := s.scrape()
	if err != nil {
		return err
	}

	t.figure("peak goodput", "%.0f/s, %.2f us CPU each", peak.perSecond(), peak.cpuEach())
	t.figure("flood: asked for / sent", "%.0f/s / %.0f/s, %.1f times the peak", over.rate, float64(over.sent)/over.elapsed.Seconds(), float64(over.sent)/over.elapsed.Seconds()/peak.perSecond())
	t.figure("flood: goodput", "%.0f/s, %.2f us CPU each", over.perSecond(), over.cpuEach())
	t.figure("flood: goodput against peak, by CPU time", "%.2f (%.2f to %.2f)", ratio, ratios[0], ratios[rounds-1])
	t.figure("flood: server on its CPU / waiting for it", "%.0f %% / %.0f %%", 100*over.cpu.Seconds()/over.elapsed.Seconds(), 100*over.wait.Seconds()/over.elapsed.Seconds())
	t.figure("flood: our own queues overran", "%d", over.overrun)
	probes.report()
	t.promise(ratio >= 0.9, "goodput of a flood is within 10 %% of the peak, for the same CPU time: %.2f of it, in rounds %.2f", ratio, ratios)
	// Else it might answer few queries cheaply and sleep.
	t.promise((over.cpu+over.wait).Seconds() >= 0.8*over.elapsed.Seconds(), "the server works all the time in a flood: %v of %v on a CPU, %v waiting for one", over.cpu, over.elapsed, over.wait)
	if t.fast {
		sent := float64(peak.sent + over.sent)
		received := after.sum(fastudp("received_total")) - before.sum(fastudp("received_total"))
		kernel := after.sum(fastudp("kernel_dropped_total")) - before.sum(fastudp("kernel_dropped_total"))
		t.figure("messages a read, peak / flood", "%.1f / %.1f", peak.received/peak.reads, over.received/over.reads)
		t.figure("sent - received / dropped by the kernel as counted", "%.0f / %.0f", sent-received, kernel)
		t.promise(near(sent-received, kernel, 0.001*sent), "the kernel's drops are counted: %.0f sent and not received, %.0f counted", sent-received, kernel)
		drops := after.sum(fastudp("dropped_total")) - before.sum(fastudp("dropped_total"))
		t.promise(drops == 0, "what is received is answered: %.0f are dropped", drops)
	}
	return t.attacks()
}

func near(a, b, tolerance float64) bool { return a-b <= tolerance && b-a <= tolerance }

// meter adds up runs and what the server used in them.
type meter struct {
	rate                    float64
	sent, answered, overrun uint64
	received, reads         float64 // of fastudp
	elapsed, cpu, wait      time.Duration
}

func (m *meter) run(t *trial, c load.Config) error {
	c.Target, c.Questions = t.server.addr, whoamiQuestion()
	m.rate = c.Rate
	m1, err := t.server.scrape()
	if err != nil {
		return err
	}
	before, err := t.server.Usage()
	if err != nil {
		return err
	}
	wait := runDelay(t.server.PID())
	r, err := load.Run(t.ctx, c)
	if err != nil {
		return err
	}
	after, err := t.server.Usage()
	m.sent += r.Sent
	m.answered += r.Answered + r.Stray + r.Overrun
	m.overrun += r.Overrun
	m.elapsed += r.Elapsed
	m.cpu += cpu(after) - cpu(before)
	m.wait += time.Duration(runDelay(t.server.PID()) - wait)
	if err != nil {
		return err
	}
	m2, err := t.server.scrape()
	m.received += m2.sum(fastudp("received_total")) - m1.sum(fastudp("received_total"))
	m.reads += m2.sum(fastudp("reads_total")) - m1.sum(fastudp("reads_total"))
	return err
}

func (m *meter) add(n meter) {
	m.rate = max(m.rate, n.rate)
	m.sent += n.sent
	m.answered += n.answered
	m.overrun += n.overrun
	m.received += n.received
	m.reads += n.reads
	m.elapsed += n.elapsed
	m.cpu += n.cpu
	m.wait += n.wait
}

func (m *meter) perSecond() float64 { return float64(m.answered) / m.elapsed.Seconds() }

// cpuEach is the server's microseconds for each answer.
func (m *meter) cpuEach() float64 { return float64(m.cpu.Microseconds()) / float64(m.answered) }

func cpu(u child.Usage) time.Duration { return u.User + u.System }

// second is the second number of a line.
func second(line string) int64 {
	f := strings.Fields(line)
	if len(f) < 2 {
		return 0
	}
	n, _ := strconv.ParseInt(f[1], 10, 64)
	return n
}

// probes asks what must work during a flood, one after the other.
type probes struct {
	t       *trial
	names   []string
	ask     []func() error
	longest []time.Duration
	sum     []time.Duration
	count   []int
	errs    []error
}

func newProbes(t *trial) *probes {
	s := t.server
	return &probes{
		t: t, names: []string{"TCP query", "/health", "/metrics"},
		ask: []func() error{
			func() error { return s.ask(s.addr, "tcp", patience) },
			func() error { _, err := get(s.health); return err },
			func() error { _, err := get(s.metrics); return err },
		},
		longest: make([]time.Duration, 3), sum: make([]time.Duration, 3), count: make([]int, 3), errs: make([]error, 3),
	}
}

// start asks all the time until stop, and each at least once.
func (p *probes) start() (stop func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	for i, ask := range p.ask {
		wg.Go(func() {
			for {
				begin := time.Now()
				if err := ask(); err != nil {
					p.errs[i] = err
				}
				d := time.Since(begin)
				p.longest[i] = max(p.longest[i], d)
				p.sum[i] += d
				p.count[i]++
				select {
				case <-quit:
					return
				case <-time.After(time.Second): // often enough to see, seldom enough not to be the load
				}
			}
		})
	}
	return func() { close(quit); wg.Wait() }
}

func (p *probes) report() {
	for i, name := range p.names {
		p.t.figure("flood: "+name+", mean / longest", "%v / %v of %d", (p.sum[i] / time.Duration(p.count[i])).Round(time.Millisecond), p.longest[i].Round(time.Millisecond), p.count[i])
		p.t.promise(p.errs[i] == nil, "%s is answered in a flood: %v", name, p.errs[i])
	}
}

// idle measures for 3 s: a server that has nothing to do must do nothing.
func (t *trial) idle(after string) error {
	const span = 3 * time.Second
	s := t.server
	err := t.eventually("what the kernel has queued is read", func() bool {
		return !slices.ContainsFunc(udpSockets(s.addr.Port()), func(u udpSocket) bool { return u.queue > 0 })
	})
	if err != nil {
		return err
	}
	t.sleep(time.Second) // for what has been read
	before, err := s.Usage()
	if err != nil {
		return err
	}
	begin := time.Now()
	t.sleep(span)
	u, err := s.Usage()
	if err != nil {
		return err
	}
	share := 100 * (cpu(u) - cpu(before)).Seconds() / time.Since(begin).Seconds()
	answers := s.ask(s.addr, "udp", 5*time.Second)
	t.figure("CPU while idle after: "+after, "%.1f %%", share)
	t.promise(share < 3, "the server is idle after %s: %.1f %% CPU", after, share)
	t.promise(answers == nil, "the server answers after %s: %v", after, answers)
	return nil
}

// attacks is one client after another that misbehaves.
func (t *trial) attacks() error {
	s := t.server
	if err := t.idle("the flood"); err != nil {
		return err
	}
	log := s.Log()
	begin := time.Now()
	for _, a := range attacks {
		end := time.Now().Add(min(5*time.Second, t.length/6))
		sent := 0
		for time.Now().Before(end) && t.ctx.Err() == nil {
			n, err := a.once(s.addr)
			if err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			if sent += n; n == 0 {
				break // not to be had here
			}
		}
		if sent == 0 {
			t.figure("attack: "+a.name, "not tried: it needs root")
			continue
		}
		t.figure("attack: "+a.name, "%d packets", sent)
		if err := t.idle(a.name); err != nil {
			return err
		}
	}
	lines := kinds(strings.TrimPrefix(s.Log(), log))
	most, which := 0, ""
	for line, n := range lines {
		if n > most {
			most, which = n, line
		}
	}
	minutes := int(time.Since(begin)/time.Minute) + 1
	t.figure("log lines in the attacks, most of one kind", "%d", most)
	t.promise(most <= minutes, "a log line a minute of each kind: %d times in %d minutes: %s", most, minutes, which)
	if t.fast {
		m, err := s.scrape()
		if err != nil {
			return err
		}
		t.figure("drops in all", "%s", m.byReason())
		t.figure("responses that the kernel refused", "%.0f", m.sum(fastudp("send_errors_total")))
	}
	return nil
}

// attack is a way to misbehave. once returns after a part of a second with how many packets it sent.
type attack struct {
	name string
	once func(netip.AddrPort) (int, error)
}
