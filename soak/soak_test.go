package main

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestQuestion(t *testing.T) {
	for _, want := range []string{"whoami.test.", "x1z.test."} {
		var m dns.Msg
		label, _, _ := strings.Cut(want, ".")
		if err := m.Unpack(appendQuestion(nil, label, testZone)); err != nil {
			t.Fatal(err)
		}
		if m.Question[0].Name != want || m.Question[0].Qtype != dns.TypeA || !m.RecursionDesired || len(m.Question) != 1 {
			t.Errorf("%v, want A of %s", m.Question, want)
		}
	}
}

// TestCorpus: it is the same each time and has what README.md says.
func TestCorpus(t *testing.T) {
	all := corpus(1)
	if !slices.EqualFunc(all, corpus(1), bytes.Equal) || slices.EqualFunc(all, corpus(2), bytes.Equal) {
		t.Error("the corpus does not follow from the seed")
	}
	var opcodes [16]bool
	lengths := map[int]bool{}
	tsig, malformed, update, notify := 0, 0, 0, 0
	for _, b := range all {
		lengths[len(b)] = true
		if len(b) >= 12 && b[2]&0x80 == 0 {
			opcodes[b[2]>>3&15] = true
		}
		var m dns.Msg
		if m.Unpack(b) != nil {
			malformed++
			continue
		}
		if m.IsTsig() != nil {
			tsig++
		}
		if m.Opcode == dns.OpcodeUpdate {
			update++
		}
		if m.Opcode == dns.OpcodeNotify {
			notify++
		}
	}
	for n := range 38 {
		if !lengths[n] {
			t.Errorf("no packet has %d bytes", n)
		}
	}
	if slices.Contains(opcodes[:], false) || tsig == 0 || malformed < 300 || update == 0 || notify == 0 || !lengths[4097] {
		t.Errorf("opcodes %v, %d with TSIG, %d malformed, %d UPDATE, %d NOTIFY", opcodes, tsig, malformed, update, notify)
	}
}

func TestScrapeSum(t *testing.T) {
	s := scrape(`# HELP a_total Help a_total 5
a_total{server="x",reason="short"} 3
a_total{server="y",reason="short"} 1.5e+06
a_total{server="y",reason="proxy"} 7
a_total_more{reason="short"} 100
go_goroutines 12
`)
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"a_total", nil, 1500010}, {"a_total", []string{`reason="short"`}, 1500003},
		{"a_total", []string{`reason="short"`, `server="x"`}, 3}, {"go_goroutines", nil, 12}, {"none", nil, 0},
	} {
		if got := s.sum(c.name, c.labels...); got != c.want {
			t.Errorf("%s %v: %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

func TestKinds(t *testing.T) {
	k := kinds("dropped 12 of 5\ndropped 9 of 1\n\nother\n")
	if len(k) != 2 || k["dropped # of #"] != 2 || k["other"] != 1 {
		t.Error(k)
	}
}

func TestReport(t *testing.T) {
	stock, fast := new(trial), &trial{fast: true}
	stock.figure("a", "1")
	stock.figure("c", "3")
	fast.figure("a", "%d", 10)
	fast.figure("b", "20")
	fast.figure("c", "30")
	fast.figure("d", "40")
	stock.promise(false, "stock's")
	fast.promise(true, "kept")
	if fast.verdict() != nil {
		t.Error("a promise that is kept counts as broken")
	}
	fast.promise(false, "number %d", 5)
	want := "| | stock | fastudp |\n|---|---|---|\n| a | 1 | 10 |\n| b |  | 20 |\n| c | 3 | 30 |\n| d |  | 40 |\n| promises kept | 0 of 1 | 1 of 2 |\n"
	got := report(stock, fast)
	if !strings.HasPrefix(got, want) || !strings.Contains(got, "fastudp breaks a promise: number 5") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := fast.verdict(); err == nil || !strings.Contains(err.Error(), "number 5") || strings.Contains(err.Error(), "stock") {
		t.Errorf("verdict %v", err)
	}
}

func TestChecksum(t *testing.T) {
	// The header with its checksum sums up to nothing.
	ip := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1}
	sum := checksum(ip)
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	if sum == 0 || checksum(ip) != 0 {
		t.Errorf("checksum %x", sum)
	}
}

// TestAttacksArrive: each sends what it says.
func TestAttacksArrive(t *testing.T) {
	for _, a := range attacks {
		if a.name == "forged port unreachable" {
			continue // it is no datagram
		}
		t.Run(a.name, func(t *testing.T) {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetReadBuffer(4 << 20)
			n, err := a.once(c.LocalAddr().(*net.UDPAddr).AddrPort())
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				t.Skip("needs root")
			}
			buf := make([]byte, 512)
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			size, from, err := c.ReadFromUDPAddrPort(buf)
			if err != nil {
				t.Fatal(err)
			}
			want := len(whoami)
			if strings.Contains(a.name, "0 bytes") {
				want = 0
			}
			if size != want || strings.Contains(a.name, "port 0") != (from.Port() == 0) {
				t.Errorf("%d bytes from %v, want %d", size, from, want)
			}
		})
	}
}

func TestSilentServer(t *testing.T) {
	s, err := newSilentServer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	ask := func(timeout time.Duration) error { return new(server).ask(s.addr, "udp", timeout) }
	if err := ask(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	s.silence()
	if err := ask(100 * time.Millisecond); err == nil || !err.(net.Error).Timeout() {
		t.Errorf("%v, want a time-out", err)
	}
	if err := new(server).ask(s.addr, "tcp", time.Second); err == nil {
		t.Error("TCP is not refused")
	}
}

// TestUDPSockets: what waits in a receive queue and what it had no room for are seen from outside.
func TestUDPSockets(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc/net/udp")
	}
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadBuffer(4096)
	to := c.LocalAddr().(*net.UDPAddr).AddrPort()
	one := func() udpSocket {
		all := udpSockets(to.Port())
		if len(all) != 1 {
			t.Fatalf("%d sockets on our port, want 1", len(all))
		}
		return all[0]
	}
	if s := one(); s.queue != 0 || s.drops != 0 {
		t.Errorf("a new socket has %+v", s)
	}
	drops := newKernelDrops(to.Port())
	drops.set("it")
	if _, err := unreachable(to); err != nil {
		t.Fatal(err)
	}
	s := one()
	drops.stop()
	if s.queue == 0 || s.drops < 500 || s.drops > 1000 {
		t.Errorf("1,000 datagrams to a queue of 4,096 bytes: %+v", s)
	}
	if want := fmt.Sprintf("%d, it: %d", s.drops, s.drops); drops.String() != want {
		t.Errorf("%s are counted, want %s", drops, want)
	}
}
