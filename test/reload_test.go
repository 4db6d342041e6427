package test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns/caddy"

	"github.com/miekg/dns"
)

// steady asks at a steady rate and keeps account of every query. None is sent twice.
type steady struct {
	flows   []*flow
	end     chan struct{}
	once    sync.Once
	senders sync.WaitGroup
	readers sync.WaitGroup
	answers atomic.Int64
}

type flow struct {
	conn *net.UDPConn
	sent int
	got  [1 << 16]uint8 // answers by ID, the reader's alone until it has ended
}

// startSteady asks a question a millisecond, of which some take a while, over flows that reach all sockets of a listener.
func startSteady(t *testing.T, addrs ...string) *steady {
	t.Helper()
	s := &steady{end: make(chan struct{})}
	for i := range 24 {
		s.flows = append(s.flows, &flow{conn: dial(t, addrs[i%len(addrs)])})
	}
	for _, f := range s.flows {
		s.readers.Go(func() {
			buf := make([]byte, 2048)
			for {
				n, err := f.conn.Read(buf)
				if err != nil {
					if ne, ok := err.(net.Error); ok && ne.Timeout() {
						return
					}
					time.Sleep(time.Millisecond) // refused: nobody listens, which the account will show
				} else if n >= 12 {
					f.got[int(buf[0])<<8|int(buf[1])]++
					s.answers.Add(1)
				}
			}
		})
	}
	t.Cleanup(s.stop)
	s.senders.Go(func() {
		fast, slow := query("fast.test.", dns.TypeA), query("sleep-30.test.", dns.TypeA)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-s.end:
				return
			case <-tick.C:
			}
			f := s.flows[i%len(s.flows)]
			msg := fast
			if i%5 == 0 {
				msg = slow
			}
			f.conn.Write(setID(msg, uint16(f.sent)))
			f.sent++
		}
	})
	return s
}

// more waits for n more answers.
func (s *steady) more(t *testing.T, n int64) {
	t.Helper()
	want := s.answers.Load() + n
	eventually(t, fmt.Sprintf("%d more answers", n), patience, func() bool { return s.answers.Load() >= want })
}

func (s *steady) stop() {
	s.once.Do(func() { close(s.end) })
	s.senders.Wait()
}

// finish ends the queries and says how many got no answer and how many more than one.
func (s *steady) finish() (sent, lost, twice int) {
	s.stop()
	for _, f := range s.flows {
		sent += f.sent
	}
	within(2*time.Second, func() bool { return s.answers.Load() >= int64(sent) })
	for _, f := range s.flows {
		f.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // for what comes twice
	}
	s.readers.Wait()
	for _, f := range s.flows {
		for i := range f.got {
			if f.got[i] == 0 && i < f.sent {
				lost++
			}
			if f.got[i] > 1 {
				twice++
			}
		}
	}
	return sent, lost, twice
}

func TestReloadLosesNothing(t *testing.T) {
	with := func(block string) string { return fmt.Sprintf(".:PORT {\n %s\n sleep\n}\n", block) }
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	alsoTaken := fmt.Sprintf(".:%d {\n bind 127.0.0.1\n fastudp 2\n sleep\n}\n", taken.LocalAddr().(*net.UDPAddr).Port)

	const wild = "127.0.0.1 127.0.0.7 ::1"
	for _, c := range []struct {
		name  string
		hosts string
		start string
		then  []string // in turn; an error is expected of those that begin with "!"
	}{
		{"same", "127.0.0.1", with("bind 127.0.0.1\n fastudp 4"), []string{with("bind 127.0.0.1\n fastudp 4")}},
		{"same on a wildcard", wild, with("fastudp 4"), []string{with("fastudp 4")}},
		{"fewer and more", "127.0.0.1", with("bind 127.0.0.1\n fastudp 4"),
			[]string{with("bind 127.0.0.1\n fastudp 2"), with("bind 127.0.0.1\n fastudp 8"), with("bind 127.0.0.1\n fastudp 1"), with("bind 127.0.0.1\n fastudp 4")}},
		{"fewer and more on a wildcard", wild, with("fastudp 4"),
			[]string{with("fastudp 2"), with("fastudp 8"), with("fastudp 4")}},
		{"random steering", "127.0.0.1", with("bind 127.0.0.1\n fastudp 4 {\n steer random\n }"),
			[]string{with("bind 127.0.0.1\n fastudp 2 {\n steer random\n }"), with("bind 127.0.0.1\n fastudp 8 {\n steer random\n }"), with("bind 127.0.0.1\n fastudp 4")}},
		{"removed and added", "127.0.0.1", with("bind 127.0.0.1\n fastudp 4"),
			[]string{with("bind 127.0.0.1"), with("bind 127.0.0.1\n fastudp 4")}},
		{"removed and added on a wildcard", wild, with("fastudp 4"), []string{with(""), with("fastudp 4")}},
		{"multisocket", "127.0.0.1", with("bind 127.0.0.1\n multisocket 2\n fastudp 5"),
			[]string{with("bind 127.0.0.1\n multisocket 3\n fastudp 7"), with("bind 127.0.0.1\n multisocket 3\n fastudp 3")}},
		{"fewer of multisocket", "127.0.0.1", with("bind 127.0.0.1\n multisocket 6\n fastudp 6"),
			[]string{with("bind 127.0.0.1\n multisocket 6\n fastudp 6"), with("bind 127.0.0.1\n multisocket 2\n fastudp 2"), with("bind 127.0.0.1\n multisocket 6\n fastudp 8")}},
		{"does not parse", "127.0.0.1", with("bind 127.0.0.1\n fastudp 4"),
			[]string{"!" + with("bind 127.0.0.1\n fastudp 4 5"), "!" + with("bind 127.0.0.1\n fastudp 4\n nonsense"), with("bind 127.0.0.1\n fastudp 4")}},
		{"fails late", "127.0.0.1", with("bind 127.0.0.1\n fastudp 4"),
			[]string{"!" + with("bind 127.0.0.1\n fastudp 6\n sleep fail-startup\n}\n.:0 {"), with("bind 127.0.0.1\n fastudp 4")}},
		{"another port is taken", "127.0.0.1", with("bind 127.0.0.1\n fastudp 4"),
			[]string{"!" + with("bind 127.0.0.1\n fastudp 4") + alsoTaken, "!" + with("bind 127.0.0.1\n fastudp 8") + alsoTaken}},
		{"another port is taken and stock's", "127.0.0.1", with("bind 127.0.0.1\n fastudp 4"),
			[]string{"!" + with("bind 127.0.0.1\n fastudp 6") + stock(alsoTaken), "!" + with("bind 127.0.0.1") + alsoTaken}},
		{"added while another port is taken", "127.0.0.1", with("bind 127.0.0.1"),
			[]string{"!" + with("bind 127.0.0.1\n fastudp 4") + alsoTaken}},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := fmt.Sprint(freePort(t))
			inst, err := caddy.Start(input(strings.ReplaceAll(c.start, "PORT", port)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { stop(inst) })
			var addrs []string
			for host := range strings.FieldsSeq(c.hosts) {
				addrs = append(addrs, net.JoinHostPort(host, port))
			}
			s := startSteady(t, addrs...)
			s.more(t, 100)
			for i := range 10 {
				corefile, fails := strings.CutPrefix(c.then[i%len(c.then)], "!")
				next, err := inst.Restart(input(strings.ReplaceAll(corefile, "PORT", port)))
				if fails != (err != nil) {
					t.Errorf("restart %d: error %v, expected one: %t", i, err, fails)
				}
				inst = next
				s.more(t, 50)
			}
			if sent, lost, twice := s.finish(); lost != 0 || twice != 0 {
				t.Errorf("of %d queries %d got no answer and %d more than one", sent, lost, twice)
			}
		})
	}
}

// TestReloadLeavesNothing goes through every kind of reload many times.
func TestReloadLeavesNothing(t *testing.T) {
	port := freePort(t)
	with := func(block string) caddy.Input {
		return input(fmt.Sprintf(".:%d {\n bind 127.0.0.1\n %s\n}\n", port, block))
	}
	addr := fmt.Sprint("127.0.0.1:", port)
	inst, err := caddy.Start(with("fastudp 4\n sleep"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { stop(inst) }()
	noLeak(t, func() {
		for _, r := range []struct {
			block string
			fails bool
		}{
			{"fastudp 2\n sleep", false}, {"fastudp 8\n sleep fail", true}, {"fastudp 8\n sleep fail-startup", true},
			{"fastudp 8\n sleep", false}, {"sleep", false}, {"fastudp 3\n sleep fail-startup", true}, {"fastudp 4\n sleep", false},
		} {
			next, err := inst.Restart(with(r.block))
			if r.fails != (err != nil) {
				t.Fatalf("%q: error %v", r.block, err)
			}
			inst = next
			ask(t, "udp", addr, "a.test.")
			ask(t, "tcp", addr, "a.test.")
		}
	})
}
