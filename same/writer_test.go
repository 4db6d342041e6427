package same

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/coredns/core/dnsserver"

	"github.com/miekg/dns"
)

// probe uses the listener's own dns.ResponseWriter and notes what it sees. What the client receives
// is noted too. Both variants must note the same.
type probe struct {
	name string
	run  func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg, note func(format string, args ...any))
}

// outcome is an error in words that are the same for both.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, net.ErrClosed):
		return "closed"
	case strings.Contains(err.Error(), "too long"):
		return "too long"
	case strings.Contains(err.Error(), "after Close"), strings.Contains(err.Error(), "already closed"):
		return "after Close"
	}
	return err.Error()
}

func reply(r *dns.Msg, txt string) *dns.Msg {
	m := new(dns.Msg).SetReply(r)
	m.Answer = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}, Txt: []string{txt}}}
	return m
}

// bulky is a reply that takes about n kilobytes.
func bulky(r *dns.Msg, n int) *dns.Msg {
	m := reply(r, "bulky")
	for range n * 4 {
		m.Answer = append(m.Answer, reply(r, strings.Repeat("x", 243)).Answer...)
	}
	return m
}

func written(n int, err error) string { return fmt.Sprintf("%d %s", n, outcome(err)) }

var probes = []probe{
	{name: "WriteMsg twice", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		note("first %s", outcome(w.WriteMsg(reply(r, "one"))))
		note("second %s", outcome(w.WriteMsg(reply(r, "two"))))
	}},
	{name: "Write", run: func(_ context.Context, w dns.ResponseWriter, _ *dns.Msg, note func(string, ...any)) {
		note("three bytes %s", written(w.Write([]byte{1, 2, 3})))
		note("no bytes %s", written(w.Write([]byte{})))
		note("nil %s", written(w.Write(nil)))
		note("no DNS %s", written(w.Write(bytes.Repeat([]byte("no DNS "), 200))))
	}},
	{name: "what was written may be changed", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		b := []byte("original")
		note("Write %s", written(w.Write(b)))
		copy(b, "modified")
		m := reply(r, "original")
		note("WriteMsg %s", outcome(w.WriteMsg(m)))
		m.Answer[0].(*dns.TXT).Txt[0] = "modified"
	}},
	{name: "Close", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		note("before %s", outcome(w.WriteMsg(reply(r, "before"))))
		note("Close %s", outcome(w.Close()))
		note("WriteMsg %s", outcome(w.WriteMsg(reply(r, "after"))))
		note("Write %s", written(w.Write([]byte("after"))))
		note("Close again %s", outcome(w.Close()))
	}},
	{name: "Hijack", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		w.Hijack()
		note("WriteMsg %s", outcome(w.WriteMsg(reply(r, "hijacked"))))
		note("Close %s", outcome(w.Close()))
	}},
	{name: "TSIG of an unsigned query", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		note("status %v", w.TsigStatus())
		w.TsigTimersOnly(false)
		note("WriteMsg %s", outcome(w.WriteMsg(reply(r, "unsigned"))))
	}},
	{name: "signed answers to an unsigned query", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		signed := func(key string, rcode uint16) *dns.Msg {
			m := reply(r, "signed").SetTsig(key, dns.HmacSHA256, 300, 1700000000)
			m.IsTsig().Error = rcode
			return m
		}
		note("known key %s", outcome(w.WriteMsg(signed(keyName, 0))))
		w.TsigTimersOnly(true)
		note("timers only %s", outcome(w.WriteMsg(signed(keyName, 0))))
		w.TsigTimersOnly(false)
		note("unknown key %s", outcome(w.WriteMsg(signed("nobody.", 0))))
		note("known key after it %s", outcome(w.WriteMsg(signed(keyName, 0))))
		twice := signed("nobody.", 0)
		note("unknown key, once %s", outcome(w.WriteMsg(twice)))
		note("the same message %s", outcome(w.WriteMsg(twice)))
		note("known key after it %s", outcome(w.WriteMsg(signed(keyName, 0))))
		long := signed("nobody.", 0)
		long.Answer[0].(*dns.TXT).Txt[0] = strings.Repeat("x", 300)
		note("unknown key, long string %s", outcome(w.WriteMsg(long)))
		other := signed("nobody.", 0)
		other.IsTsig().Algorithm = "rot13."
		note("unknown key and algorithm %s", outcome(w.WriteMsg(other)))
		note("known key after it %s", outcome(w.WriteMsg(signed(keyName, 0))))
		note("unknown key, bad key %s", outcome(w.WriteMsg(signed("nobody.", dns.RcodeBadKey))))
		note("known key, bad signature %s", outcome(w.WriteMsg(signed(keyName, dns.RcodeBadSig))))
		note("known key, bad time %s", outcome(w.WriteMsg(signed(keyName, dns.RcodeBadTime))))
		m := signed(keyName, 0)
		m.IsTsig().Algorithm = "rot13."
		note("unknown algorithm %s", outcome(w.WriteMsg(m)))
	}},
	{name: "long datagrams", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		for _, n := range []int{1472, 9000, 16 << 10, 65507, 65508, 65527, 65528, 65535, 65536, 70000} {
			note("Write %d: %s", n, written(w.Write(bytes.Repeat([]byte{byte(n)}, n))))
			time.Sleep(5 * time.Millisecond) // the client has a small socket buffer
		}
		note("after it %s", outcome(w.WriteMsg(reply(r, "after"))))
	}},
	{name: "long messages", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		for _, n := range []int{3, 20, 50, 70, 200} {
			m := bulky(r, n)
			note("WriteMsg %d: %s", n, outcome(w.WriteMsg(m)))
			m.Compress = true
			note("WriteMsg compressed %d: %s", n, outcome(w.WriteMsg(m)))
			time.Sleep(5 * time.Millisecond)
		}
	}},
	{name: "messages that do not pack", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		m := reply(r, strings.Repeat("x", 300))
		note("long string %s", outcome(w.WriteMsg(m)))
		m = reply(r, "x")
		m.Answer[0].Header().Name = strings.Repeat("x", 64) + "."
		note("long label %s", outcome(w.WriteMsg(m)))
		m.Answer = []dns.RR{nil}
		note("nil record %s", outcome(w.WriteMsg(m)))
		m.Answer, m.Rcode = nil, 5000
		note("rcode out of range %s", outcome(w.WriteMsg(m)))
		m.Rcode = dns.RcodeBadVers
		note("extended rcode without OPT %s", outcome(w.WriteMsg(m)))
		note("empty message %s", outcome(w.WriteMsg(new(dns.Msg))))
	}},
	{name: "a nil message panics", run: func(_ context.Context, w dns.ResponseWriter, _ *dns.Msg, note func(string, ...any)) {
		defer func() { note("panic %v", recover()) }()
		note("WriteMsg %s", outcome(w.WriteMsg(nil)))
	}},
	{name: "context", run: func(ctx context.Context, _ dns.ResponseWriter, _ *dns.Msg, note func(string, ...any)) {
		s := ctx.Value(dnsserver.Key{})
		note("server %T", s)
		note("server %v", s.(*dnsserver.Server) != nil)
		note("loop %v", ctx.Value(dnsserver.LoopKey{}))
		note("view %v", ctx.Value(dnsserver.ViewKey{}))
		_, bounded := ctx.Deadline()
		note("deadline %v, ends %v, error %v", bounded, ctx.Done() != nil, ctx.Err())
	}},
	{name: "connection state", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		s, ok := w.(dns.ConnectionStater)
		note("dns.ConnectionStater %v", ok)
		note("TLS %v", ok && s.ConnectionState() != nil)
	}},
	{name: "from other goroutines at once", run: func(_ context.Context, w dns.ResponseWriter, r *dns.Msg, note func(string, ...any)) {
		var wg sync.WaitGroup
		errs := make(chan error, 10*50)
		for i := range 10 {
			wg.Go(func() {
				for j := range 50 {
					errs <- w.WriteMsg(reply(r, fmt.Sprint(i, " ", j)))
				}
			})
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			note("%s", outcome(err))
		}
	}},
}

const probeCorefile = `.:PORT {
	HOST
	FASTUDP
	tsig {
		secret ` + keyName + ` ` + keySecret + `
	}
	handler NAME
}
`

func probeFile(host, name string) string {
	bind := ""
	if host != "" {
		bind = "bind " + host
	}
	return strings.NewReplacer("HOST", bind, "NAME", name).Replace(probeCorefile)
}

// TestWriter compares what plugins can do with the writer, for queries that fastudp handles itself and
// for notifies, which it gives to stock.
func TestWriter(t *testing.T) {
	t.Parallel()
	for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify} {
		for _, host := range []string{"127.0.0.1", "::1"} {
			t.Run(fmt.Sprintf("%s %s", dns.OpcodeToString[opcode], host), func(t *testing.T) {
				t.Parallel()
				for _, p := range probes {
					t.Run(p.name, func(t *testing.T) {
						t.Parallel()
						var notes [2][]string
						// What comes late on a busy machine comes in time for the more patient.
						for _, patience := range []time.Duration{30, 300, 1000} {
							for v := range variants {
								notes[v] = runProbe(t, p, host, opcode, v, patience*time.Millisecond)
							}
							if slices.Equal(notes[0], notes[1]) {
								return
							}
						}
						t.Errorf("stock:\n\t%s\nfastudp:\n\t%s", strings.Join(notes[0], "\n\t"), strings.Join(notes[1], "\n\t"))
					})
				}
			})
		}
	}
}

// runProbe asks variant v once and returns what the probe noted and what the client received.
func runProbe(t *testing.T, p probe, host string, opcode, v int, patience time.Duration) []string {
	name := strings.ReplaceAll(t.Name()+variants[v], " ", "-")
	var mu sync.Mutex
	var notes []string
	note := func(format string, args ...any) {
		mu.Lock()
		notes = append(notes, fmt.Sprintf(format, args...))
		mu.Unlock()
	}
	done := make(chan bool)
	handle(t, name, func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		p.run(ctx, rawWriter(w), r, note)
		close(done)
		return dns.RcodeSuccess, nil
	})
	i := startVariant(t, probeFile(host, name), v)
	m := question("probe.", dns.TypeTXT)
	m.Opcode, m.Id = opcode, 4711
	conn := dialUDP(t, i.addr(host))
	received := make(chan []string)
	go func() { received <- receiveAll(conn, done, patience) }()
	if _, err := conn.Write(pack(m)); err != nil {
		t.Fatal(err)
	}
	answers := <-received
	mu.Lock()
	defer mu.Unlock()
	if len(notes) == 0 {
		t.Fatal("the handler has not run")
	}
	return append(notes, answers...)
}

func dialUDP(t *testing.T, addr string) *net.UDPConn {
	t.Helper()
	conn, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.(*net.UDPConn).SetReadBuffer(4 << 20)
	return conn.(*net.UDPConn)
}

// receiveAll describes the datagrams that come until the handler is done and for as long as patience
// after the last, sorted.
func receiveAll(conn *net.UDPConn, done chan bool, patience time.Duration) []string {
	all := []string{}
	buf := make([]byte, 70000)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		finished := false
		select {
		case <-done:
			finished = true
		default:
		}
		conn.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.Read(buf)
		if err == nil {
			all = append(all, fmt.Sprintf("received %d bytes %x", n, buf[:min(n, 400)]))
		} else if finished {
			break
		}
	}
	slices.Sort(all)
	return all
}

// TestAddresses compares the addresses that plugins see, for each way to bind and to ask.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ bind, ask string }{
		{"127.0.0.1", "127.0.0.1"}, {"127.0.0.2", "127.0.0.2"}, {"::1", "::1"}, {"0.0.0.0", "127.0.0.1"}, {"0.0.0.0", "127.0.0.3"},
		{"::", "::1"}, {"::", "127.0.0.1"}, {"", "127.0.0.1"}, {"", "127.0.0.4"}, {"", "::1"},
	} {
		if runtime.GOOS != "linux" && c.ask != "127.0.0.1" && c.ask != "::1" {
			continue // only Linux has all of 127.0.0.0/8 on loopback
		}
		for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify} {
			t.Run(fmt.Sprintf("bind %q ask %s %s", c.bind, c.ask, dns.OpcodeToString[opcode]), func(t *testing.T) {
				t.Parallel()
				var got [2]string
				for v := range variants {
					got[v] = addressesOf(t, c.bind, c.ask, opcode, v)
				}
				if got[0] != got[1] {
					t.Errorf("stock:\n%s\nfastudp:\n%s", got[0], got[1])
				}
			})
		}
	}
}

func addressesOf(t *testing.T, bind, ask string, opcode, v int) string {
	name := strings.ReplaceAll(t.Name()+variants[v], " ", "-")
	type seen struct{ local, remote net.Addr }
	addrs := make(chan seen, 100)
	handle(t, name, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		addrs <- seen{w.LocalAddr(), w.RemoteAddr()}
		return dns.RcodeSuccess, w.WriteMsg(reply(r, "x"))
	})
	i := startVariant(t, probeFile(bind, name), v)
	m := question("probe.", dns.TypeTXT)
	m.Opcode = opcode
	conn := dialUDP(t, i.addr(ask)) // connected: it gets only what comes from the address it asked
	exchange := func(conn *net.UDPConn) {
		if _, err := conn.Write(pack(m)); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Read(make([]byte, 512)); err != nil {
			t.Fatalf("%s: no answer from the address asked: %v", variants[v], err)
		}
	}
	exchange(conn)
	s := <-addrs
	text := describe(s.local, i.port) + "\n" + describe(s.remote, conn.LocalAddr().(*net.UDPAddr).Port)
	for range 50 {
		exchange(dialUDP(t, i.addr(ask)))
	}
	// Plugins may keep the addresses.
	if again := describe(s.local, i.port) + "\n" + describe(s.remote, conn.LocalAddr().(*net.UDPAddr).Port); again != text {
		t.Errorf("%s: an address has changed after the query: %s, was %s", variants[v], again, text)
	}
	return text
}

// describe tells all that a plugin can find out of an address, with the port that must be in it. Stock
// has 16 bytes for an IPv4 client of a socket that serves both families, fastudp always 4.
func describe(a net.Addr, port int) string {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return fmt.Sprintf("%T", a)
	}
	return fmt.Sprintf("%T %s %s right port %v 4in6 %v zone %q", a, a.Network(), u.IP, u.Port == port, u.IP.To4() != nil, u.Zone)
}

// TestLateWrites has answers written when the handler has returned, and when the server has stopped.
func TestLateWrites(t *testing.T) {
	t.Parallel()
	for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify} {
		for v := range variants {
			t.Run(fmt.Sprintf("%s %s", dns.OpcodeToString[opcode], variants[v]), func(t *testing.T) {
				t.Parallel()
				writers := make(chan dns.ResponseWriter, 1)
				name := strings.ReplaceAll(t.Name(), " ", "-")
				late := make(chan error, 1)
				handle(t, name, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
					w = rawWriter(w)
					go func() {
						time.Sleep(50 * time.Millisecond)
						late <- w.WriteMsg(reply(r, "late"))
						runtime.GC() // what an answer needs must live as long as its writer
						runtime.GC()
						time.Sleep(50 * time.Millisecond)
						late <- w.WriteMsg(reply(r, "later"))
						writers <- w
					}()
					return dns.RcodeSuccess, nil
				})
				i := startVariant(t, probeFile("127.0.0.1", name), v)
				m := question("probe.", dns.TypeTXT)
				m.Opcode = opcode
				conn := dialUDP(t, i.addr("127.0.0.1"))
				conn.Write(pack(m))
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				for _, want := range []string{"late", "later"} {
					b := make([]byte, 512)
					n, err := conn.Read(b)
					if err != nil {
						t.Fatalf("%s answer: %v", want, err)
					}
					if got := unpack(t, b[:n]).Answer[0].(*dns.TXT).Txt[0]; got != want {
						t.Errorf("answer %q, want %q", got, want)
					}
					if err := <-late; err != nil {
						t.Errorf("WriteMsg %s: %v", want, err)
					}
				}
				w := <-writers
				i.stop()
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() {
						if err := w.WriteMsg(reply(m, "too late")); outcome(err) != "closed" {
							t.Errorf("WriteMsg after Stop: %v, want that it is closed", err)
						}
						if n, err := w.Write([]byte("too late")); n != 0 || outcome(err) != "closed" {
							t.Errorf("Write after Stop: %d, %v, want that it is closed", n, err)
						}
					})
				}
				wg.Wait()
				if a := w.RemoteAddr(); a.String() != conn.LocalAddr().String() {
					t.Errorf("remote address after Stop %v, want %v", a, conn.LocalAddr())
				}
				if a := w.LocalAddr(); a.String() != i.addr("127.0.0.1") {
					t.Errorf("local address after Stop %v, want %v", a, i.addr("127.0.0.1"))
				}
			})
		}
	}
}

// TestStopWaitsForHandlers has Stop called while a handler is at work.
func TestStopWaitsForHandlers(t *testing.T) {
	t.Parallel()
	for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify} {
		for v := range variants {
			t.Run(fmt.Sprintf("%s %s", dns.OpcodeToString[opcode], variants[v]), func(t *testing.T) {
				t.Parallel()
				name := strings.ReplaceAll(t.Name(), " ", "-")
				entered := make(chan bool)
				wrote := make(chan error, 1)
				handle(t, name, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
					close(entered)
					time.Sleep(300 * time.Millisecond)
					wrote <- w.WriteMsg(reply(r, "in time"))
					return dns.RcodeSuccess, nil
				})
				i := startVariant(t, probeFile("127.0.0.1", name), v)
				m := question("probe.", dns.TypeTXT)
				m.Opcode = opcode
				conn := dialUDP(t, i.addr("127.0.0.1"))
				conn.Write(pack(m))
				<-entered
				i.stop()
				select {
				case err := <-wrote:
					if err != nil {
						t.Errorf("WriteMsg while stopping: %v", err)
					}
				default:
					t.Error("Stop has not waited for the handler")
				}
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := conn.Read(make([]byte, 512)); err != nil {
					t.Errorf("no answer: %v", err)
				}
			})
		}
	}
}

// TestManyWrites writes more answers than a queue or a socket buffer holds.
func TestManyWrites(t *testing.T) {
	for _, c := range []struct{ writers, each int }{{1, 10000}, {10, 1000}} {
		for v := range variants {
			t.Run(fmt.Sprintf("%d writers %s", c.writers, variants[v]), func(t *testing.T) {
				name := strings.ReplaceAll(t.Name(), " ", "-")
				results := make(chan error, c.writers*c.each)
				handle(t, name, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
					w = rawWriter(w)
					var wg sync.WaitGroup
					for range c.writers {
						wg.Go(func() {
							for range c.each {
								results <- w.WriteMsg(reply(r, "one of many"))
							}
						})
					}
					wg.Wait()
					close(results)
					return dns.RcodeSuccess, nil
				})
				i := startVariant(t, probeFile("127.0.0.1", name), v)
				conn := dialUDP(t, i.addr("127.0.0.1"))
				conn.Write(pack(question("probe.", dns.TypeTXT)))
				received := make(chan int)
				go func() {
					n, buf := 0, make([]byte, 512)
					for {
						conn.SetReadDeadline(time.Now().Add(time.Second))
						if _, err := conn.Read(buf); err != nil {
							received <- n
							return
						}
						n++
					}
				}()
				ok, full := 0, 0
				for err := range results {
					switch {
					case err == nil:
						ok++
					case v == fast && c.writers > 1 && strings.Contains(err.Error(), "queue is full"):
						full++ // fastudp never has writers wait, so that it must refuse what is too much
					default:
						t.Fatalf("WriteMsg: %v", err)
					}
				}
				got := <-received
				t.Logf("%d written, %d refused, %d received", ok, full, got)
				if got > ok {
					t.Errorf("%d received of %d written", got, ok)
				}
				if v == fast {
					m := metrics(t, "coredns_fastudp_", i)
					var sent float64
					for name, value := range m {
						if strings.HasPrefix(name, "coredns_fastudp_responses_total") {
							sent += value
						}
					}
					if int(sent) != ok {
						t.Errorf("the kernel took %v of %d responses that were written", sent, ok)
					}
				}
				if got < c.each/2 {
					t.Errorf("only %d of %d received", got, ok)
				}
			})
		}
	}
}

// TestRequestIsKept has a plugin keep the request, which must not point into the receive buffer.
func TestRequestIsKept(t *testing.T) {
	t.Parallel()
	all := slices.DeleteFunc(corpus(time.Now()), func(m message) bool { return !ordinary(m.data) || len(m.data) > longest })
	for v := range variants {
		t.Run(variants[v], func(t *testing.T) {
			t.Parallel()
			type kept struct {
				r    *dns.Msg
				text string
			}
			var mu sync.Mutex
			var requests []kept
			name := "keep-" + variants[v]
			handle(t, name, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				mu.Lock()
				requests = append(requests, kept{r, fmt.Sprintf("%#v %s", r.MsgHdr, r)})
				mu.Unlock()
				return dns.RcodeSuccess, rawWriter(w).WriteMsg(reply(r, "kept")) // CoreDNS's own writer changes r's OPT
			})
			i := startVariant(t, probeFile("127.0.0.1", name), v)
			conn := dialUDP(t, i.addr("127.0.0.1"))
			buf := make([]byte, 65536)
			for id, m := range all {
				conn.Write(withID(m.data, uint16(id)))
				if id%8 == 7 { // several to a batch
					conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
					for range 8 {
						if _, err := conn.Read(buf); err != nil {
							break
						}
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if len(requests) < len(all)/2 {
				t.Fatalf("%d requests of %d", len(requests), len(all))
			}
			for _, k := range requests {
				if now := fmt.Sprintf("%#v %s", k.r.MsgHdr, k.r); now != k.text {
					t.Fatalf("a request has changed after its handler: %s\nwas %s", now, k.text)
				}
			}
		})
	}
}

// TestGoexit has a handler end its goroutine, as a failed assertion in a test plugin does.
func TestGoexit(t *testing.T) {
	t.Parallel()
	for v := range variants {
		t.Run(variants[v], func(t *testing.T) {
			t.Parallel()
			name := "goexit-" + variants[v]
			handle(t, name, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				if r.Question[0].Qtype == dns.TypeA {
					runtime.Goexit()
				}
				return dns.RcodeSuccess, w.WriteMsg(reply(r, "alive"))
			})
			i := startForGood(t, probeFile("127.0.0.1", name), v) // Stop would wait for the handlers that have gone
			conn := dialUDP(t, i.addr("127.0.0.1"))
			for n := range 20 {
				conn.Write(withID(pack(question("exit.", dns.TypeA)), uint16(n)))
				conn.Write(withID(pack(question("stay.", dns.TypeTXT)), uint16(100+n)))
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := conn.Read(make([]byte, 512)); err != nil {
					t.Fatalf("no answer after %d handlers have gone: %v", n+1, err)
				}
			}
		})
	}
}
