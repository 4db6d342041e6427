package fastudp

import (
	"bytes"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/whoami"
	"github.com/fastudp/fastudp/internal/directive"

	"github.com/miekg/dns"
)

// The directive "portable N [STEER]" is fastudp's without other options: the real one's package imports this one.
func init() {
	plugin.Register("portable", func(c *caddy.Controller) error {
		o := DefaultOptions()
		c.Next()
		at := fmt.Sprintf("%s:%d", c.File(), c.Line())
		c.NextArg()
		o.Sockets, _ = strconv.Atoi(c.Val())
		if c.NextArg() {
			o.Steer = Steer(c.Val())
		}
		return Attach(c, at, o)
	})
	directive.Insert("multisocket", "portable")
	caddy.Quiet, dnsserver.Quiet = true, true
}

// usePortable has all listeners do their I/O as on a system without recvmmsg.
func usePortable(t *testing.T) {
	old := openIO
	openIO = func(c *net.UDPConn, pktinfo bool, _ Options, _ []packet, count *counters) (packetIO, error) {
		return newSingleIO(c, pktinfo, count), nil
	}
	t.Cleanup(func() { openIO = old })
}

func startCorefile(t *testing.T, corefile string) *caddy.Instance {
	t.Helper()
	inst, err := caddy.Start(caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inst.Stop() })
	return inst
}

// askPortable sends a message over a connected socket, which takes an answer from no other address than the one asked.
func askPortable(t *testing.T, c net.Conn, msg []byte, limit time.Duration) []byte {
	t.Helper()
	if _, err := c.Write(msg); err != nil {
		t.Error(err)
		return nil
	}
	buf := make([]byte, 4096)
	c.SetReadDeadline(time.Now().Add(limit))
	n, err := c.Read(buf)
	if err != nil {
		return nil
	}
	return buf[:n]
}

// portableMessages are of all kinds; those without an answer from stock have nil as their answer.
func portableMessages(t *testing.T) map[string][]byte {
	t.Helper()
	question := func() *dns.Msg {
		m := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
		m.Id = 77
		return m
	}
	edns := question().SetEdns0(4096, true)
	chaos := question()
	chaos.Question[0].Qclass = dns.ClassCHAOS
	two := question()
	two.Question = append(two.Question, two.Question[0])
	response := question()
	response.Response = true
	signed := question().SetTsig("key.", dns.HmacSHA256, 300, time.Now().Unix())
	long := question().SetEdns0(4096, false)
	long.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_PADDING{Padding: make([]byte, 5000)}}
	msgs := make(map[string][]byte)
	for name, m := range map[string]*dns.Msg{
		"query": question(), "EDNS": edns, "CHAOS": chaos, "two questions": two, "response": response, "TSIG": signed, "long": long,
		"NOTIFY": new(dns.Msg).SetNotify("example."), "UPDATE": new(dns.Msg).SetUpdate("example."),
	} {
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		msgs[name] = b
	}
	msgs["malformed"] = msgs["query"][:15]
	msgs["short"] = msgs["query"][:5]
	return msgs
}

func TestPortableAnswersAreStocks(t *testing.T) {
	usePortable(t)
	for _, c := range []struct {
		name, bind string
		hosts      []string
	}{
		{"IPv4", "bind 127.0.0.1", []string{"127.0.0.1"}},
		{"IPv6", "bind ::1", []string{"::1"}},
		{"wildcard", "", []string{"127.0.0.1", "127.0.0.2", "::1"}},
		{"IPv4 wildcard", "bind 0.0.0.0", []string{"127.0.0.1", "127.0.0.2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ports []string // of stock, of portable
			for _, line := range []string{"", "portable 2"} {
				inst := startCorefile(t, fmt.Sprintf(".:0 {\n %s\n %s\n whoami\n}\n", c.bind, line))
				_, port, _ := net.SplitHostPort(inst.Servers()[0].LocalAddr().String())
				ports = append(ports, port)
			}
			for _, host := range c.hosts {
				for name, msg := range portableMessages(t) {
					// whoami tells the client's port: the same client asks both.
					local := freeLocalPort(t, host)
					var answers [][]byte
					for _, port := range ports {
						conn := dialFrom(t, local, net.JoinHostPort(host, port))
						limit := 3 * time.Second
						if name == "response" || name == "short" {
							limit = 30 * time.Millisecond
						}
						answers = append(answers, askPortable(t, conn, msg, limit))
						conn.Close()
					}
					if !bytes.Equal(answers[0], answers[1]) {
						t.Errorf("%s to %s: stock answers %x, portable %x", name, host, answers[0], answers[1])
					}
					if name == "query" && answers[1] == nil {
						t.Errorf("%s to %s: no answer", name, host)
					}
				}
			}
		})
	}
}

func freeLocalPort(t *testing.T, host string) *net.UDPAddr {
	t.Helper()
	if strings.HasPrefix(host, "127.") {
		host = "127.0.0.1"
	}
	c, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr)
}

func dialFrom(t *testing.T, local *net.UDPAddr, addr string) *net.UDPConn {
	t.Helper()
	to, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp", local, to)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestPortableReload reloads under a client that asks one query after the other, and stops with queries queued.
func TestPortableReload(t *testing.T) {
	usePortable(t)
	for _, bind := range []string{"bind 127.0.0.1", ""} {
		inst := startCorefile(t, fmt.Sprintf(".:0 {\n %s\n portable 2\n whoami\n}\n", bind))
		_, port, _ := net.SplitHostPort(inst.Servers()[0].LocalAddr().String())
		addr := net.JoinHostPort("127.0.0.1", port)
		end, done := make(chan struct{}), make(chan int)
		go func() {
			lost := 0
			msg, _ := new(dns.Msg).SetQuestion("a.example.", dns.TypeA).Pack()
			for asked := 0; ; asked++ {
				select {
				case <-end:
					if asked == 0 {
						lost++
					}
					done <- lost
					return
				default:
				}
				c, err := net.Dial("udp", addr)
				if err != nil {
					lost++
					continue
				}
				if askPortable(t, c, msg, 3*time.Second) == nil {
					lost++
				}
				c.Close()
			}
		}()
		for range 10 {
			next, err := inst.Restart(nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { next.Stop() })
			inst = next
			time.Sleep(5 * time.Millisecond) // some queries for each
		}
		close(end)
		if lost := <-done; lost != 0 {
			t.Errorf("%q: %d queries got no answer", bind, lost)
		}

		c, err := net.Dial("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		msg, _ := new(dns.Msg).SetQuestion("a.example.", dns.TypeA).Pack()
		const n = 100
		for range n {
			if _, err := c.Write(msg); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		inst.Stop()
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%q: the stop took %v", bind, took)
		}
		got := 0
		buf := make([]byte, 512)
		for c.SetReadDeadline(time.Now().Add(time.Second)); got < n; got++ {
			if _, err := c.Read(buf); err != nil {
				break
			}
		}
		if got != n {
			t.Errorf("%q: %d of %d queries before the stop are answered", bind, got, n)
		}
		p, err := net.ListenPacket("udp", net.JoinHostPort("", port))
		if err != nil {
			t.Fatalf("%q: the port is not free after the stop: %v", bind, err)
		}
		p.Close()
	}
}
