package faults

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func corefile(lines string) string {
	return ".:0 {\n bind 127.0.0.1\n " + lines + "\n prometheus 127.0.0.1:0\n errors\n answers\n}\n"
}

// bothHere runs f in this process with stock's listener and with fastudp's.
func bothHere(t *testing.T, directive string, f func(t *testing.T, addr string, fast bool)) {
	for _, v := range []struct{ name, lines string }{{"stock", ""}, {"fastudp", directive}} {
		t.Run(v.name, func(t *testing.T) {
			_, addr := start(t, corefile(v.lines))
			f(t, addr, v.lines != "")
		})
	}
}

// TestHandlersPanic has more handlers panic than may be at work at once.
func TestHandlersPanic(t *testing.T) {
	bothHere(t, "fastudp 2 {\n max_inflight 4\n }", func(t *testing.T, addr string, fast bool) {
		const n = 500
		before := metric(t, "panics_total")
		c := dial(t, addr)
		for i := range n {
			b := roundTrip(c, query("panic.test", uint16(i)), patience)
			if m := new(dns.Msg); b == nil || m.Unpack(b) != nil || m.Rcode != dns.RcodeServerFailure {
				t.Fatalf("after %d panics the answer is %x, not SERVFAIL", i, b)
			}
		}
		if got := metric(t, "panics_total") - before; got != n {
			t.Errorf("%v of %d panics are counted", got, n)
		}
		if b := roundTrip(c, query("a.test", 1), patience); b == nil {
			t.Error("no answer after the panics")
		}
		if fast {
			eventually(t, "no query is in a handler", func() bool { return metric(t, "fastudp_inflight_queries") == 0 })
		}
	})
}

// message is a query, or another message, for name.
func message(t *testing.T, opcode int, name string, id uint16) []byte {
	t.Helper()
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeTXT)
	m.Opcode, m.Id = opcode, id
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestHandlersHang has handlers hang, as many as may, and others come. When they go on all is well again.
func TestHandlersHang(t *testing.T) {
	for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify} {
		t.Run(dns.OpcodeToString[opcode], func(t *testing.T) {
			const bound, n, flows = 50, 500, 20
			_, addr := start(t, corefile(fmt.Sprintf("fastudp 2 {\n max_inflight %d\n }", bound)))
			name := "hang." + dns.OpcodeToString[opcode] + ".test."
			release := hangs.hold(name)
			defer release()
			var conns []net.Conn
			for range flows {
				conns = append(conns, dial(t, addr))
			}
			for i := range n {
				conns[i%flows].Write(message(t, opcode, name, uint16(i)))
			}
			reason := map[int]string{dns.OpcodeQuery: "inflight", dns.OpcodeNotify: "unusual"}[opcode]
			eventually(t, "all are in handlers or dropped", func() bool {
				return float64(hangs.count(name))+metric(t, "fastudp_dropped_total "+reason) == n
			})
			if got := hangs.count(name); got != bound {
				t.Errorf("%d queries are in handlers, not %d", got, bound)
			}
			if roundTrip(conns[0], message(t, opcode, "a.test", 1000), 50*time.Millisecond) != nil {
				t.Error("one more is answered: the bound is none")
			}
			release()
			answered := 0
			for _, c := range conns {
				c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				for buf := make([]byte, 512); ; answered++ {
					if _, err := c.Read(buf); err != nil {
						break
					}
				}
			}
			if answered != bound {
				t.Errorf("%d are answered when they go on, not %d", answered, bound)
			}
			if roundTrip(conns[0], message(t, opcode, "a.test", 1001), patience) == nil {
				t.Error("no answer after it")
			}
		})
	}
}

// TestHandlersKeepRequest has handlers keep requests while many others come, which must not change them.
func TestHandlersKeepRequest(t *testing.T) {
	_, addr := start(t, corefile("fastudp 2 {\n batch 8\n }"))
	c := dial(t, addr)
	keep := func(opcode int, i int) {
		m := new(dns.Msg).SetQuestion(fmt.Sprintf("keep.%d.test.", i), dns.TypeTXT)
		m.Opcode, m.Id = opcode, uint16(i)
		m.SetEdns0(1232, true)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: dns.EDNS0LOCALSTART, Data: []byte(fmt.Sprint("data of ", i))}}
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if roundTrip(c, b, patience) == nil {
			t.Fatalf("no answer to query %d", i)
		}
	}
	const n = 100
	for i := range n {
		keep(dns.OpcodeQuery, i)
		keep(dns.OpcodeNotify, n+i)
	}
	sent, buf := 0, make([]byte, 512)
	for sent < many() {
		for range 50 {
			c.Write(query(fmt.Sprintf("other%d.with.some.longer.name.to.overwrite.test", sent), uint16(sent)))
			sent++
		}
		for range 50 {
			c.SetReadDeadline(time.Now().Add(patience))
			if _, err := c.Read(buf); err != nil {
				t.Fatalf("an answer among the first %d is missing: %v", sent, err)
			}
		}
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if len(kept.msgs) != 2*n {
		t.Fatalf("%d requests are kept, not %d", len(kept.msgs), 2*n)
	}
	for i, m := range kept.msgs {
		if now := m.String(); now != kept.said[i] {
			t.Fatalf("a request has changed:\n%s\nwas\n%s", now, kept.said[i])
		}
	}
	kept.msgs, kept.said = nil, nil
}
