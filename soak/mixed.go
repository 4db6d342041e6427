package main

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/fastudp/fastudp/internal/load"
)

// mixed: a bit of everything on two listeners for long.
func mixed(t *trial) error {
	silent, err := newSilentServer()
	if err != nil {
		return err
	}
	defer silent.close()
	silent.silence()
	directives := []string{"", ""}
	if t.fast {
		directives = []string{"fastudp 2", "fastudp 4 {\n batch 32\n max_inflight 2000\n }"}
	}
	corefile := func(i int) string {
		return fmt.Sprintf("test.:{DNS} {\n bind 127.0.0.1 ::1\n %s\n whoami\n health {HEALTH}\n prometheus {METRICS}\n errors\n}\n"+
			"dead.:{DNS} {\n bind 127.0.0.1 ::1\n cache\n forward . %s\n}\n", directives[i%2], silent.addr)
	}
	if err := t.start(corefile(0)); err != nil {
		return err
	}
	s := t.server
	six := netip.AddrPortFrom(netip.IPv6Loopback(), s.addr.Port())

	// The good clients.
	stop4 := t.steadyAt(load.Config{Target: s.addr, Sockets: 16, Rate: t.rate / 2, Questions: names("a", 100)})
	stop6 := t.steadyAt(load.Config{Target: six, Sockets: 16, Rate: t.rate / 2, Questions: names("b", 100)})
	// The bad ones.
	var stops []func() (load.Result, error)
	for _, to := range []netip.AddrPort{s.addr, six} {
		stops = append(stops,
			t.steadyAt(load.Config{Target: to, Rate: t.rate / 20, Questions: corpus(2)}),
			t.steadyAt(load.Config{Target: to, Rate: t.rate / 100, Question: func(n uint64, b []byte) []byte {
				return appendQuestion(b, fmt.Sprint(n), "\x04dead")
			}}))
	}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			a := attacks[i%len(attacks)]
			if _, err := a.once([]netip.AddrPort{s.addr, six}[i/len(attacks)%2]); err != nil {
				return
			}
			select {
			case <-quit:
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	})

	rss, dropped, failed := t.watch(corefile)
	close(quit)
	wg.Wait()
	r4, err4 := stop4()
	r6, err6 := stop6()
	for _, stop := range stops {
		stop()
	}
	if failed != nil || err4 != nil || err6 != nil {
		return fmt.Errorf("%v, %v, %v", failed, err4, err6)
	}

	lost, sent := r4.Lost+r6.Lost, r4.Sent+r6.Sent
	t.figure("good queries / lost on 127.0.0.1", "%d / %d", r4.Sent, r4.Lost)
	t.figure("good queries / lost on ::1", "%d / %d", r6.Sent, r6.Lost)
	t.figure("answered twice", "%d", r4.Duplicate+r6.Duplicate)
	t.figure("longest latency", "%v", time.Duration(max(r4.Latency.Max(), r6.Latency.Max())).Round(time.Millisecond))
	t.promise(r4.Duplicate+r6.Duplicate == 0, "no query is answered twice: %d are", r4.Duplicate+r6.Duplicate)
	if t.fast {
		t.figure("drops as counted", "%.0f", dropped)
	}
	t.promise(float64(lost) <= dropped+float64(r4.Overrun+r6.Overrun), "no query is lost but for counted drops: %d of %d are, %.0f drops are counted", lost, sent, dropped)
	if len(rss) < 8 {
		return fmt.Errorf("only %d samples of memory", len(rss))
	}
	second, last := median(rss[len(rss)/4:len(rss)/2]), median(rss[len(rss)*3/4:])
	t.figure("median RSS of the second / last quarter", "%s / %s", mib(second), mib(last))
	if !t.race {
		t.promise(float64(last) <= 1.25*float64(second), "memory does not grow: %s in the second quarter, %s in the last", mib(second), mib(last))
	}
	u, err := s.Usage()
	t.figure("peak RSS", "%s", mib(u.PeakRSS))
	return err
}

// watch reloads every 20 s and samples memory every 10 s, more often in a short trial, and adds up what
// was dropped for want of room. The counters begin anew with each reload, so they are read before.
func (t *trial) watch(corefile func(int) string) (rss []int64, dropped float64, err error) {
	half := min(10*time.Second, t.length/16)
	t.text.WriteString("RSS in MiB:")
	begin := time.Now()
	for i := 1; time.Since(begin) < t.length && t.ctx.Err() == nil; i++ {
		t.sleep(half*time.Duration(i) - time.Since(begin))
		x, m, err := t.look()
		if err != nil {
			return rss, dropped, err
		}
		rss = append(rss, x.rss)
		fmt.Fprintf(&t.text, " %d", x.rss>>20)
		if i%2 == 0 {
			dropped += m.noRoom()
			if err := t.reload(corefile(i/2), reloaded); err != nil {
				return rss, dropped, err
			}
		}
	}
	t.text.WriteString("\n")
	m, err := t.server.scrape()
	return rss, dropped + m.noRoom(), err
}

func median(x []int64) int64 {
	s := slices.Sorted(slices.Values(x))
	return s[len(s)/2]
}
