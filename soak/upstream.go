package main

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fastudp/fastudp/internal/load"
	"github.com/miekg/dns"
)

const (
	maxInflight = 2000
	cachedNames = 1000
	perQuery    = 36 << 10 // of a query that waits for forward: a stack of 16 KiB, the rest is heap

	// So long after the surge goroutines and memory must be near what they were before.
	rest = 10 * time.Second
)

// upstream: cache and forward to a server that answers while the cache is filled, and never again.
// Half of the queries are for what is in the cache, the other half for names never asked before.
func upstream(t *trial) error {
	silent, err := newSilentServer()
	if err != nil {
		return err
	}
	defer silent.close()
	directive := ""
	if t.fast {
		directive = fmt.Sprintf("fastudp {\n max_inflight %d\n }", maxInflight)
	}
	if err := t.start(fmt.Sprintf(".:{DNS} {\n bind 127.0.0.1\n %s\n cache 3600\n forward . %s\n prometheus {METRICS}\n}\n", directive, silent.addr)); err != nil {
		return err
	}
	s := t.server
	cached := names("cached", cachedNames)
	fill := func() (load.Result, error) {
		return load.Run(t.ctx, load.Config{Target: s.addr, Outstanding: 50, Questions: cached, Count: cachedNames, Timeout: 5 * time.Second})
	}
	if r, err := fill(); err != nil || r.Rcodes[0] != cachedNames {
		return fmt.Errorf("%d of %d names are in the cache: %w", r.Rcodes[0], cachedNames, err)
	}
	silent.silence()
	t.sleep(2 * time.Second)
	idle, before, err := t.look()
	if err != nil {
		return err
	}

	var hits, misses load.Result
	var hitsErr, missesErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		hits, hitsErr = load.Run(t.ctx, load.Config{
			Target: s.addr, Sockets: 16, Rate: t.rate / 2, Questions: cached, Duration: t.length, Timeout: 4 * time.Second,
		})
	})
	wg.Go(func() {
		misses, missesErr = load.Run(t.ctx, load.Config{
			Target: s.addr, Sockets: 16, Rate: t.rate / 2, Question: distinct("miss"), Duration: t.length, Timeout: 10 * time.Second,
		})
	})
	peak, err := t.curve(before)
	wg.Wait()
	if hitsErr != nil || missesErr != nil || err != nil {
		return fmt.Errorf("load: %v, %v; samples: %w", hitsErr, missesErr, err)
	}
	t.sleep(time.Until(t.surgeEnd.Add(rest)))
	end, rested, err := t.look()
	if err != nil {
		return err
	}
	again, err := fill()
	if err != nil {
		return err
	}
	usage, err := s.Usage()
	if err != nil {
		return err
	}

	sent := hits.Sent + misses.Sent
	t.figure("queries", "%d", sent)
	t.figure("cached names answered", "%d of %d", hits.Answered, hits.Sent)
	t.figure("longest / median latency of these", "%v / %v", time.Duration(hits.Latency.Max()).Round(time.Millisecond), time.Duration(hits.Latency.ValueAtQuantile(50)).Round(10*time.Microsecond))
	t.figure("new names answered SERVFAIL within 10 s", "%d of %d", misses.Rcodes[dns.RcodeServerFailure], misses.Sent)
	t.figure("cached names answered after the surge", "%d of %d", again.Answered, again.Sent)
	t.figure("peak RSS / without the pages of the program itself", "%s / %s", mib(usage.PeakRSS), mib(peak.anon))
	t.figure("RSS idle / 10 s after the surge", "%s / %s", mib(idle.rss), mib(end.rss))
	t.figure("without the pages of the program: idle / 10 s after", "%s / %s", mib(idle.anon), mib(end.anon))
	t.figure("goroutines idle / most / 10 s after", "%.0f / %.0f / %.0f", idle.goroutines, peak.goroutines, end.goroutines)
	t.figure("most memory of heap / stacks in use / runtime in all", "%s / %s / %s", mib(int64(peak.heap)), mib(int64(peak.stacks)), mib(int64(peak.sys)))
	t.figure("most descriptors", "%d", peak.fds)
	if t.fast {
		delta := func(name string) float64 { return rested.sum(fastudp(name)) - before.sum(fastudp(name)) }
		received, drops := delta("received_total"), delta("dropped_total")
		ended := delta("responses_total") + delta("send_errors_total") + drops + rested.sum(fastudp("inflight_queries"))
		t.figure("drops", "%s", rested.byReason())
		t.figure("received / answered + dropped + in handlers", "%.0f / %.0f", received, ended)
		t.promise(received == ended, "received queries are accounted for: %.0f received, %.0f answered, dropped or in handlers", received, ended)
		arrived := received + delta("kernel_dropped_total")
		t.promise(arrived == float64(sent), "sent queries are accounted for: %d sent, %.0f received or dropped by the kernel", sent, arrived)
		t.promise(float64(hits.Answered) >= 0.8*float64(hits.Sent), "cached names stay answered: %d of %d", hits.Answered, hits.Sent)
		most := float64(maxInflight + maxInflight/16)
		t.promise(peak.inflight <= most, "max_inflight: %.0f in handlers, at most %.0f", peak.inflight, most)
	}
	t.promise(hits.Duplicate+misses.Duplicate == 0, "no query is answered twice: %d are", hits.Duplicate+misses.Duplicate)
	t.promise(again.Answered == cachedNames, "cached names are answered after the surge: %d of %d", again.Answered, cachedNames)
	t.promise(end.goroutines <= idle.goroutines+50, "goroutines end: %.0f idle, %.0f %v after the surge", idle.goroutines, end.goroutines, rest)
	if !t.race {
		bound := idle.anon + maxInflight*perQuery
		t.promise(peak.anon <= bound, "memory follows from max_inflight: %s that is not the program itself, at most %s", mib(peak.anon), mib(bound))
	}
	if !t.race {
		t.promise(float64(end.anon) <= 1.2*float64(idle.anon)+10<<20, "memory is near idle: %s idle, %s %v after the surge, without the pages of the program", mib(idle.anon), mib(end.anon), rest)
	}
	return nil
}

// sample is one look at the server.
type sample struct {
	rss, anon            int64
	fds                  int
	goroutines, inflight float64
	heap, stacks, sys    float64 // bytes, as the runtime accounts for them
}

func (t *trial) look() (sample, scrape, error) {
	m, err := t.server.scrape()
	if err != nil {
		return sample{}, m, err
	}
	u, err := t.server.Usage()
	return sample{
		u.RSS, u.AnonRSS, u.FDs, m.sum("go_goroutines"), m.sum(fastudp("inflight_queries")),
		m.sum("go_memstats_heap_inuse_bytes"), m.sum("go_memstats_stack_inuse_bytes"), m.sum("go_memstats_sys_bytes"),
	}, m, err
}

// samples is how many are taken in the length of a trial: every 2 s in a full one.
const samples = 30

// curve samples the server for the length of the trial, writes down every fifth sample, and returns
// the maxima.
func (t *trial) curve(before scrape) (peak sample, err error) {
	const hits = "coredns_cache_hits_total"
	last := before.sum(hits)
	t.text.WriteString("| after | RSS | goroutines | cached names answered | drops so far |\n|---|---|---|---|---|\n")
	begin := time.Now()
	for i := 1; i <= samples && t.ctx.Err() == nil; i++ {
		t.sleep(t.length*time.Duration(i)/samples - time.Since(begin))
		x, m, err := t.look()
		if err != nil {
			return peak, err
		}
		peak.rss, peak.anon, peak.fds = max(peak.rss, x.rss), max(peak.anon, x.anon), max(peak.fds, x.fds)
		peak.goroutines, peak.inflight = max(peak.goroutines, x.goroutines), max(peak.inflight, x.inflight)
		peak.heap, peak.stacks, peak.sys = max(peak.heap, x.heap), max(peak.stacks, x.stacks), max(peak.sys, x.sys)
		if i%5 == 0 {
			n := m.sum(hits)
			fmt.Fprintf(&t.text, "| %v | %s | %.0f | %.0f | %s |\n", time.Since(begin).Round(time.Second/10), mib(x.rss), x.goroutines, n-last, m.byReason())
			last = n
		}
	}
	t.surgeEnd = begin.Add(t.length)
	return peak, nil
}

// silentServer answers DNS over UDP until it falls silent; its port stays bound. TCP is refused.
type silentServer struct {
	addr netip.AddrPort
	conn *net.UDPConn
	done chan struct{}
}

func newSilentServer() (*silentServer, error) {
	port, err := freePort() // for TCP too, on which nobody listens
	if err != nil {
		return nil, err
	}
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return nil, err
	}
	s := &silentServer{c.LocalAddr().(*net.UDPAddr).AddrPort(), c, make(chan struct{})}
	go s.answer()
	return s, nil
}

func (s *silentServer) answer() {
	defer close(s.done)
	buf := make([]byte, 4096)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		var q dns.Msg
		if q.Unpack(buf[:n]) != nil || len(q.Question) != 1 {
			continue
		}
		r := new(dns.Msg).SetReply(&q)
		r.Answer = []dns.RR{&dns.A{
			Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 3600}, A: net.IPv4(192, 0, 2, 1),
		}}
		if b, err := r.Pack(); err == nil {
			s.conn.WriteToUDPAddrPort(b, from)
		}
	}
}

// silence ends the answers.
func (s *silentServer) silence() {
	s.conn.SetReadDeadline(time.Unix(1, 0))
	<-s.done
}

func (s *silentServer) close() { s.silence(); s.conn.Close() }
