package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/fastudp/fastudp/internal/load"
)

// maliciousMemory bounds the peak RSS: the stock path holds up to max_inflight messages, each with a
// goroutine.
const maliciousMemory = 256 << 20

// malicious: a good client at a fixed rate, alone, beside hostile packets of which there are few
// enough to serve them all, and beside as many as we can send.
func malicious(t *trial) error {
	directive := ""
	if t.fast {
		directive = "fastudp"
	}
	if err := t.start(fmt.Sprintf(".:{DNS} {\n bind 127.0.0.1\n %s\n whoami\n prometheus {METRICS}\n}\n", directive)); err != nil {
		return err
	}
	s := t.server
	hostile := corpus(1)
	phase := t.length / 4

	capacity, err := load.Run(t.ctx, load.Config{Target: s.addr, Sockets: 8, Outstanding: 50, Questions: whoamiQuestion(), Duration: phase})
	if err != nil {
		return err
	}
	good := min(t.rate, perSecond(capacity)/3)
	t.figure("capacity", "%.0f/s", perSecond(capacity))
	t.figure("hostile packets, different ones", "%d", len(hostile))
	for _, p := range []struct {
		name string
		rate float64 // of hostile packets; some cost ten times as much as a query
	}{{"alone", 0}, {"beside few hostile packets", perSecond(capacity) / 20}, {"beside all we can send", 1e6}} {
		if err := t.besideHostile(p.name, good, p.rate, hostile, phase); err != nil {
			return err
		}
	}
	u, err := s.Usage()
	if err != nil {
		return err
	}
	t.figure("peak RSS", "%s", mib(u.PeakRSS))
	if !t.race {
		t.promise(u.PeakRSS < maliciousMemory, "peak RSS: %s, below %s", mib(u.PeakRSS), mib(maliciousMemory))
	}
	if err := t.idle("the hostile packets"); err != nil {
		return err
	}
	if t.fast {
		m, err := s.scrape()
		if err != nil {
			return err
		}
		t.figure("drops in all", "%s", m.byReason())
		t.figure("given to the stock server", "%.0f", m.sum(fastudp("unusual_total")))
	}
	return nil
}

// besideHostile measures what becomes of a good client.
func (t *trial) besideHostile(name string, goodRate, hostileRate float64, hostile [][]byte, length time.Duration) error {
	s := t.server
	before, err := s.scrape()
	if err != nil {
		return err
	}
	var good, bad load.Result
	var goodErr, badErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		good, goodErr = load.Run(t.ctx, load.Config{
			Target: s.addr, Sockets: 16, Rate: goodRate, Questions: whoamiQuestion(), Duration: length, Timeout: 5 * time.Second,
		})
	})
	if hostileRate > 0 {
		wg.Go(func() {
			bad, badErr = load.Run(t.ctx, load.Config{
				Target: s.addr, Sockets: 64, Rate: hostileRate, Questions: hostile, Duration: length, Timeout: 500 * time.Millisecond,
			})
		})
	}
	wg.Wait()
	if goodErr != nil || badErr != nil {
		return fmt.Errorf("%v, %v", goodErr, badErr)
	}
	after, err := s.scrape()
	if err != nil {
		return err
	}
	sent := good.Sent + bad.Sent
	badPerSecond := 0.0
	if bad.Elapsed > 0 {
		badPerSecond = float64(bad.Sent) / bad.Elapsed.Seconds()
	}
	t.figure(name+": queries / hostile packets sent", "%.0f/s / %.0f/s", float64(good.Sent)/good.Elapsed.Seconds(), badPerSecond)
	t.figure(name+": good queries lost", "%d of %d", good.Lost, good.Sent)
	t.figure(name+": median / longest latency", "%v / %v", time.Duration(good.Latency.ValueAtQuantile(50)).Round(10*time.Microsecond), time.Duration(good.Latency.Max()).Round(time.Millisecond))
	t.promise(good.Duplicate == 0 && good.Rcodes[0] == good.Answered, "%s: each answer comes once and with NOERROR: %d twice, rcodes %v", name, good.Duplicate, good.Rcodes)
	if !t.fast {
		t.promise(hostileRate >= 1e6 || good.Lost == 0, "%s: no good query is lost: %d of %d", name, good.Lost, good.Sent)
		return nil
	}
	kernel := after.sum(fastudp("kernel_dropped_total")) - before.sum(fastudp("kernel_dropped_total"))
	inflight := after.sum(fastudp("dropped_total"), `reason="inflight"`) - before.sum(fastudp("dropped_total"), `reason="inflight"`)
	t.figure(name+": dropped by the kernel", "%.0f of %d", kernel, sent)
	// The kernel drops whatever comes when a queue is full, so the good client gets through as often as
	// any packet. Chance is generous: it is singled out if it is not half as lucky.
	through := float64(good.Sent) * (1 - kernel/float64(sent))
	least := float64(good.Sent - min(good.Sent, good.Overrun))
	if kernel > 0 {
		least = max(0, through/2-100)
	}
	t.promise(float64(good.Answered) >= least, "%s: the good client loses what the kernel drops at most: %d of %d answered, %.0f is its share of what got through", name, good.Answered, good.Sent, through)
	t.promise(inflight == 0, "%s: no ordinary query is dropped for hostile ones: %.0f are", name, inflight)
	if hostileRate < 1e6 {
		t.promise(kernel == 0, "%s: there is room for all: the kernel dropped %.0f", name, kernel)
	}
	return nil
}
