package same

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/pires/go-proxyproto"
)

// proxyHeader is a PROXY header of version 2.
func proxyHeader(command proxyproto.ProtocolVersionAndCommand, family proxyproto.AddressFamilyAndProtocol, source, dest net.Addr, tlvs ...proxyproto.TLV) []byte {
	h := &proxyproto.Header{Version: 2, Command: command, TransportProtocol: family, SourceAddr: source, DestinationAddr: dest}
	if len(tlvs) > 0 {
		if err := h.SetTLVs(tlvs); err != nil {
			panic(err)
		}
	}
	b, err := h.Format()
	if err != nil {
		panic(err)
	}
	return b
}

func udpAddr(s string) *net.UDPAddr { return net.UDPAddrFromAddrPort(mustAddrPort(s)) }

var (
	client4 = proxyHeader(proxyproto.PROXY, proxyproto.UDPv4, udpAddr("192.0.2.10:1234"), udpAddr("192.0.2.1:53"))
	client6 = proxyHeader(proxyproto.PROXY, proxyproto.UDPv6, udpAddr("[2001:db8::10]:1234"), udpAddr("[2001:db8::1]:53"))
	other4  = proxyHeader(proxyproto.PROXY, proxyproto.UDPv4, udpAddr("192.0.2.11:4321"), udpAddr("192.0.2.1:53"))
	local4  = proxyHeader(proxyproto.LOCAL, proxyproto.UDPv4, udpAddr("192.0.2.12:1"), udpAddr("192.0.2.1:53"))
	tlvs4   = proxyHeader(proxyproto.PROXY, proxyproto.UDPv4, udpAddr("192.0.2.13:1"), udpAddr("192.0.2.1:53"),
		proxyproto.TLV{Type: 0xEA, Value: []byte{1, 'v', 'p', 'c'}}, proxyproto.TLV{Type: proxyproto.PP2_TYPE_NOOP, Value: []byte{0, 0}}, proxyproto.TLV{Type: 0xE0, Value: nil})
)

// proxyDatagrams are datagrams with all sorts of headers.
func proxyDatagrams() []message {
	ask := pack(question("proxied.", dns.TypeTXT))
	notify := question("proxied.", dns.TypeSOA)
	notify.Opcode = dns.OpcodeNotify
	var all []message
	add := func(name string, parts ...[]byte) { all = append(all, message{name: name, data: join(parts...)}) }
	headers := []message{
		{name: "no header"}, {name: "v4", data: client4}, {name: "v6", data: client6}, {name: "local", data: local4}, {name: "tlvs", data: tlvs4},
		{name: "tcp", data: proxyHeader(proxyproto.PROXY, proxyproto.TCPv4, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 10), Port: 1}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 2})},
		{name: "unix", data: proxyHeader(proxyproto.PROXY, proxyproto.UnixDatagram, &net.UnixAddr{Name: "/a", Net: "unixgram"}, &net.UnixAddr{Name: "/b", Net: "unixgram"})},
		{name: "unspecified", data: append(append([]byte{}, proxyproto.SIGV2...), 0x21, 0, 0, 0)},
		{name: "local, unspecified", data: append(append([]byte{}, proxyproto.SIGV2...), 0x20, 0, 0, 0)},
		{name: "version 3", data: append(append([]byte{}, proxyproto.SIGV2...), 0x31, 0x12, 0, 12, 1, 1, 1, 1, 2, 2, 2, 2, 0, 1, 0, 2)},
		{name: "command 5", data: append(append([]byte{}, proxyproto.SIGV2...), 0x25, 0x12, 0, 12, 1, 1, 1, 1, 2, 2, 2, 2, 0, 1, 0, 2)},
		{name: "length too short", data: append(append([]byte{}, proxyproto.SIGV2...), 0x21, 0x12, 0, 4, 1, 1, 1, 1, 2, 2, 2, 2, 0, 1, 0, 2)},
		{name: "length too long", data: append(append([]byte{}, proxyproto.SIGV2...), 0x21, 0x12, 0xFF, 0xFF, 1, 1, 1, 1, 2, 2, 2, 2, 0, 1, 0, 2)},
		{name: "bad tlv", data: append(append([]byte{}, proxyproto.SIGV2...), 0x21, 0x12, 0, 14, 1, 1, 1, 1, 2, 2, 2, 2, 0, 1, 0, 2, 4, 200)},
		{name: "version 1", data: []byte("PROXY TCP4 192.0.2.10 192.0.2.1 1 2\r\n")},
		{name: "version 1, unknown", data: []byte("PROXY UNKNOWN\r\n")},
		{name: "version 1, udp", data: []byte("PROXY UDP4 192.0.2.10 192.0.2.1 1 2\r\n")},
		{name: "signature alone", data: proxyproto.SIGV2},
		{name: "two headers", data: join(client4, client6)},
	}
	for _, h := range headers {
		add(h.name+", query", h.data, ask)
		add(h.name+", nothing", h.data)
		add(h.name+", notify", h.data, pack(notify))
		add(h.name+", malformed", h.data, ask[:len(ask)-3])
		add(h.name+", short", h.data, ask[:11])
		add(h.name+", response", h.data, withFlags(ask, 0x80))
		add(h.name+", status", h.data, withFlags(ask, 0x10))
	}
	for n := range len(client4) {
		add(fmt.Sprintf("v4 header cut at %d", n), client4[:n])
		add(fmt.Sprintf("v4 header cut at %d and query", n), client4[:n], ask)
	}
	edns := question("proxied.", dns.TypeTXT)
	add("v4, padded", client4, pack(padded(edns, 400)))
	add("no header, padded", pack(padded(edns, 512)))
	b := &builder{now: time.Now()}
	add("v4, signed", client4, b.sign(edns))
	add("v4, wrong secret", client4, b.signed(edns, keyName, badSecret, dns.HmacSHA256, 0))
	return all
}

func withFlags(msg []byte, flags byte) []byte {
	msg = slices.Clone(msg)
	msg[2] |= flags
	return msg
}

// forget takes what comes late, until nothing comes for a while.
func (c *client) forget(idle time.Duration) {
	for {
		if _, _, err := c.receive(time.Now().Add(idle)); err != nil {
			return
		}
	}
}

// behind sets the ID of the DNS message behind a header, which is where ask sets none. Where a header
// is taken for a DNS message, its first bytes are the ID of the answer: these come last, sorted.
func (c *client) behind(t *testing.T, idle time.Duration, all []message) [][2][]byte {
	t.Helper()
	answers := make([][2][]byte, len(all))
	waiting := make(map[uint16]int)
	for i, m := range all {
		id := c.nextID()
		waiting[id] = i
		data := slices.Clone(m.data)
		// The message of each datagram is the one for proxied.: its ID is 12 bytes before the name.
		if at := strings.Index(string(data), "\x07proxied\x00"); at >= 12 {
			copy(data[at-12:], []byte{byte(id >> 8), byte(id)})
		}
		if err := c.send(data); err != nil {
			t.Fatal(err)
		}
	}
	var others [2][]string
	for missing := 2 * len(all); missing > 0; missing-- {
		v, b, err := c.receive(time.Now().Add(idle))
		if err != nil {
			break
		}
		id, _ := answerID(b)
		if i, ok := waiting[id]; !ok || answers[i][v] != nil {
			others[v] = append(others[v], string(b))
		} else {
			answers[i][v] = slices.Clone(b)
		}
	}
	var rest [2][]byte
	for v := range others {
		slices.Sort(others[v])
		if len(others[v]) > 0 {
			rest[v] = []byte(strings.Join(others[v], ""))
		}
	}
	return append(answers, rest)
}

// TestProxyProto compares what becomes of datagrams with PROXY headers.
func TestProxyProto(t *testing.T) {
	t.Parallel()
	handle(t, "proxied", echo)
	for _, options := range []string{
		"", "default use", "default ignore", "default reject", "default skip", "allow 127.0.0.1/32", "allow 127.0.0.0/8 ::1/128\ndefault reject",
		"allow 192.0.2.0/24", "allow 192.0.2.0/24\ndefault use", "allow 192.0.2.0/24\ndefault ignore", "allow 192.0.2.0/24\ndefault reject",
		"allow 192.0.2.0/24\ndefault skip", "tlv_metadata", "tlv_metadata\nallow 127.0.0.0/8", "udp_session_tracking 1m\ntlv_metadata",
	} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			p := startPair(t, block("proxyproto {\n"+options+"\n}\nmetadata\nprometheus 127.0.0.1:METRICS\ntsig {\nsecret "+keyName+" "+keySecret+"\n}\nhandler proxied"))
			c := newClient(t, p)
			all := proxyDatagrams()
			sessions := strings.Contains(options, "tracking")
			answered := 0
			for len(all) > 0 {
				n := min(len(all), 50)
				if sessions {
					n = 1 // each datagram counts for the next
				}
				var answers [][2][]byte
				for i, idle := range []time.Duration{100, 500, 2000} {
					if sessions {
						idle = max(idle/2, 50)
					}
					if i > 0 {
						c.forget(idle * time.Millisecond)
					}
					answers = c.behind(t, idle*time.Millisecond, all[:n])
					if !slices.ContainsFunc(answers, func(a [2][]byte) bool { return !equal(a) }) {
						break
					}
				}
				for i, a := range answers {
					if !equal(a) {
						t.Errorf("%s: the answers differ\n%s", append(all[:n:n], message{name: "headers as messages"})[i].name, showBoth(a))
					}
					if a[0] != nil {
						answered++
					}
				}
				all = all[n:]
			}
			if answered < 3 {
				t.Errorf("only %d answers", answered)
			}
			sameMetrics(t, p)
		})
	}
}

// TestProxyHeaderAndLength shows the one difference: stock reads 512 bytes of header and message
// together, while for fastudp the header takes no room from the message.
func TestProxyHeaderAndLength(t *testing.T) {
	t.Parallel()
	handle(t, "proxied-long", echo)
	p := startPair(t, block("proxyproto\nmetadata\ntsig {\nsecret "+keyName+" "+keySecret+"\n}\nhandler proxied-long"))
	c := newClient(t, p)
	b := &builder{now: time.Now()}
	ask := question("proxied.", dns.TypeTXT)
	for _, m := range []struct {
		name   string
		data   []byte
		differ bool
	}{
		{"query that fits", pack(padded(ask, stockReads-len(client4))), false},
		{"query", pack(padded(ask, stockReads-len(client4)+1)), true},
		{"long query", pack(padded(ask, longest-len(client4))), true},
		{"too long query", pack(padded(ask, longest-len(client4)+1)), false},
		{"signed that fits", b.sign(padded(ask, 300)), false},
		{"signed", b.sign(padded(ask, 400)), true},
		{"signed, long", b.sign(padded(ask, 600)), false},
	} {
		a := c.behind(t, 2*time.Second, []message{{data: join(client4, m.data)}})[0]
		if a[0] == nil || a[1] == nil {
			t.Errorf("%s, %d bytes: silence\n%s", m.name, len(m.data), showBoth(a))
			continue
		}
		stock, fastudp := unpack(t, a[0]).Rcode, unpack(t, a[1]).Rcode
		if m.differ && (stock != dns.RcodeFormatError || fastudp != dns.RcodeSuccess) || !m.differ && !equal(a) {
			t.Errorf("%s, %d bytes:\n%s", m.name, len(m.data), showBoth(a))
		}
	}
}

// TestProxySessions follows the address that a header gives to the datagrams after it.
func TestProxySessions(t *testing.T) {
	t.Parallel()
	handle(t, "sessions", echo)
	ask := pack(question("proxied.", dns.TypeTXT))
	notify := question("proxied.", dns.TypeSOA)
	notify.Opcode = dns.OpcodeNotify
	steps := []struct {
		client int
		data   []byte
		sleep  time.Duration
	}{
		{0, ask, 0}, {0, client4, 0}, {0, ask, 0}, {0, pack(notify), 0}, {1, ask, 0}, {1, client6, 0}, {0, ask, 0}, {1, ask, 0},
		{0, other4, 0}, {0, ask, 0}, {0, local4, 0}, {0, ask, 0}, {0, join(local4, ask), 0}, {0, ask, 0}, {0, join(tlvs4, ask), 0}, {0, ask, 0},
		{0, ask[:11], 0}, {0, ask, 0}, {0, ask, 1500 * time.Millisecond}, {1, ask, 0}, {1, client4, 0}, {1, ask, 700 * time.Millisecond}, {1, ask, 700 * time.Millisecond},
	}
	for _, options := range []string{"udp_session_tracking 1s", "udp_session_tracking 1s 1", "udp_session_tracking 1s\ntlv_metadata"} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			p := startPair(t, block("proxyproto {\n"+options+"\n}\nmetadata\nhandler sessions"))
			clients := []*client{newClient(t, p), newClient(t, p)}
			var story []string
			for i, s := range steps {
				time.Sleep(s.sleep)
				idle := 50 * time.Millisecond
				if strings.Contains(string(s.data), "\x07proxied\x00") {
					idle = 2 * time.Second
				}
				a := clients[s.client].behind(t, idle, []message{{data: s.data}})[0]
				if !equal(a) {
					t.Fatalf("step %d: the answers differ\n%s", i, showBoth(a))
				}
				if a[0] != nil {
					if m := unpack(t, a[0]); len(m.Answer) > 0 {
						story = append(story, strings.Fields(m.Answer[0].(*dns.TXT).Txt[0])[2])
					}
				}
			}
			// Without this the two could agree on never tracking anything.
			if got := strings.Join(story, " "); !strings.Contains(got, "192.0.2.10:1234") || !strings.Contains(got, "192.0.2.11:4321") || !strings.Contains(got, "192.0.2.13:1") || !strings.Contains(got, "127.0.0.1") {
				t.Errorf("addresses seen: %s", got)
			}
		})
	}
}

// TestShedCountsLateWrites shows that shed's writer is under the answers: it takes them even when
// the server has stopped, and counts them as dropped.
func TestShedCountsLateWrites(t *testing.T) {
	t.Parallel()
	for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify} {
		t.Run(dns.OpcodeToString[opcode], func(t *testing.T) {
			t.Parallel()
			var got [2]map[string]float64
			for v := range variants {
				writers := make(chan dns.ResponseWriter, 1)
				name := fmt.Sprintf("shed-%d-%d", opcode, v)
				handle(t, name, func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
					writers <- rawWriter(w)
					return dns.RcodeSuccess, w.WriteMsg(reply(r, "x"))
				})
				i := startVariant(t, block("shed\nhandler "+name), v)
				conn := dialUDP(t, i.addr("127.0.0.1"))
				m := question("a.", dns.TypeTXT)
				m.Opcode = opcode
				conn.Write(pack(m))
				conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := conn.Read(make([]byte, 512)); err != nil {
					t.Fatalf("%s: no answer: %v", variants[v], err)
				}
				w := <-writers
				i.stop()
				for range 3 {
					if err := w.WriteMsg(reply(m, "late")); err != nil {
						t.Errorf("%s: WriteMsg after Stop: %v, want that shed takes it", variants[v], err)
					}
				}
				got[v] = metrics(t, "coredns_shed_", i)
			}
			if d := diff(got[0], got[1]); d != "" {
				t.Error(d)
			}
			if n := got[0]["coredns_shed_dropped_total{reason=response,server=dns://127.0.0.1:PORT}"]; n != 3 {
				t.Errorf("stock has counted %v answers as dropped, want 3", n)
			}
		})
	}
}

// TestShedSheds has a handler write answers faster than shed's one writer can send them: shed drops the
// oldest answers, and queries too without a word while it is full. Then it answers again.
func TestShedSheds(t *testing.T) {
	t.Parallel()
	for v := range variants {
		t.Run(variants[v], func(t *testing.T) {
			calm := make(chan struct{})
			storm := func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
				if r.Question[0].Name == "storm." {
					raw, answer := rawWriter(w), reply(r, "x")
					for range 4 {
						go func() {
							for range 1_000_000 {
								select {
								case <-calm:
									return
								default:
									raw.WriteMsg(answer)
								}
							}
						}()
					}
				}
				return dns.RcodeSuccess, w.WriteMsg(reply(r, "x"))
			}
			name := fmt.Sprintf("storm-%d", v)
			handle(t, name, storm)
			i := startVariant(t, block("shed\nhandler "+name), v)
			conn, stormer := dialUDP(t, i.addr("127.0.0.1")), dialUDP(t, i.addr("127.0.0.1"))
			ask := func(wait time.Duration) bool {
				conn.Write(pack(question("a.", dns.TypeTXT)))
				conn.SetReadDeadline(time.Now().Add(wait))
				_, err := conn.Read(make([]byte, 512))
				return err == nil
			}
			dropped := func(reason string) float64 {
				return metrics(t, "coredns_shed_", i)["coredns_shed_dropped_total{reason="+reason+",server=dns://127.0.0.1:PORT}"]
			}
			stormer.Write(pack(question("storm.", dns.TypeTXT)))
			asked, answered := 0.0, 0.0
			for dropped("query") < 10 && asked < 2000 {
				asked++
				if ask(20 * time.Millisecond) {
					answered++
				}
			}
			close(calm)
			if queries, responses := dropped("query"), dropped("response"); queries < 10 || responses == 0 {
				t.Errorf("shed dropped %v queries of %v and %v responses", queries, asked, responses)
			} else if answered > asked-queries {
				t.Errorf("%v answers to %v queries of which %v were dropped", answered, asked, queries)
			}
			for range 100 {
				if ask(time.Second) {
					return
				}
			}
			t.Error("no answer after the storm")
		})
	}
}

// TestLogLines compares what log and errors print.
func TestLogLines(t *testing.T) { // not parallel: there is one log
	handle(t, "log", func(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		switch r.Question[0].Qtype {
		case dns.TypeA:
			return dns.RcodeSuccess, w.WriteMsg(reply(r, "logged"))
		case dns.TypeMX:
			return dns.RcodeServerFailure, fmt.Errorf("it fails for %s", r.Question[0].Name)
		case dns.TypePTR:
			panic("the handler panics")
		}
		return dns.RcodeNameError, w.WriteMsg(new(dns.Msg).SetRcode(r, dns.RcodeNameError))
	})
	var got [2][]string
	for v := range variants {
		text := logged(func() {
			i := startVariant(t, block(`metadata
log . "{remote} {local} {type} {class} {name} {proto} {size} {>do} {>bufsize} {rcode} {>rflags} {rsize} {>opcode} {/log/type}"
log other. denial
errors
handler log`), v)
			conn := dialUDP(t, i.addr("127.0.0.1"))
			for n, qtype := range []uint16{dns.TypeA, dns.TypeMX, dns.TypePTR, dns.TypeSOA, dns.TypeA} {
				for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify, dns.OpcodeStatus} {
					m := withEdns(question(fmt.Sprintf("Name%d.other.", n), qtype), 1232)
					m.Opcode, m.Id = opcode, uint16(4711+n)
					conn.Write(pack(m))
					conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					if _, err := conn.Read(make([]byte, 512)); err != nil {
						t.Fatalf("%s: no answer: %v", variants[v], err)
					}
					time.Sleep(5 * time.Millisecond) // what is logged after the answer comes in order
				}
			}
			i.stop()
			for _, port := range []int{i.port, conn.LocalAddr().(*net.UDPAddr).Port} {
				got[v] = append(got[v], fmt.Sprint(port))
			}
		})
		ports := got[v]
		got[v] = nil
		times := regexp.MustCompile(`[0-9.]+(s|ms|µs)\b|^[0-9/]+ [0-9:]+ `)
		for line := range strings.Lines(text) {
			line = times.ReplaceAllString(line, "")
			for _, port := range ports {
				line = strings.ReplaceAll(line, ":"+port, ":PORT")
			}
			if !strings.Contains(line, "plugin/fastudp") && strings.Contains(line, "ther") {
				got[v] = append(got[v], line)
			}
		}
	}
	if !slices.Equal(got[0], got[1]) {
		t.Errorf("stock logs\n%sfastudp logs\n%s", strings.Join(got[0], ""), strings.Join(got[1], ""))
	}
	if len(got[0]) < 10 {
		t.Errorf("only %d lines:\n%s", len(got[0]), strings.Join(got[0], ""))
	}
}

// tapped is what a dnstap message says.
func tapped(frame []byte) string {
	var text []string
	fields := func(b []byte, f func(number, value uint64, data []byte)) {
		for len(b) > 0 {
			key, n := binary.Uvarint(b)
			b = b[n:]
			switch key & 7 {
			case 0:
				v, n := binary.Uvarint(b)
				b = b[n:]
				f(key>>3, v, nil)
			case 2:
				l, n := binary.Uvarint(b)
				f(key>>3, 0, b[n:n+int(l)])
				b = b[n+int(l):]
			case 5:
				b = b[4:]
			default:
				text = append(text, fmt.Sprintf("wire type %d", key&7))
				return
			}
		}
	}
	fields(frame, func(number, value uint64, data []byte) {
		if number != 14 { // Dnstap.message
			return
		}
		fields(data, func(number, value uint64, data []byte) {
			switch {
			case number == 8, number == 9, number == 12, number == 13: // times
			case number == 6 && (text[0] == "1:7:" || text[0] == "1:8:"): // the port from which forward asks
			default:
				text = append(text, fmt.Sprintf("%d:%d:%x", number, value, data))
			}
		})
	})
	return strings.Join(text, " ")
}

// tapServer takes frames from one dnstap plugin, see the Frame Streams protocol.
func tapServer(t *testing.T) (path string, frames func() []string) {
	dir, err := os.MkdirTemp("", "tap") // t.TempDir may be too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var mu sync.Mutex
	var all []string
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		for {
			var head [4]byte
			if _, err := io.ReadFull(r, head[:]); err != nil {
				return
			}
			n := binary.BigEndian.Uint32(head[:])
			control := n == 0
			if control {
				io.ReadFull(r, head[:])
				n = binary.BigEndian.Uint32(head[:])
			}
			frame := make([]byte, n)
			if _, err := io.ReadFull(r, frame); err != nil {
				return
			}
			switch {
			case control && frame[3] == 4: // READY: ACCEPT its content type
				frame[3] = 1
				conn.Write(join([]byte{0, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, n), frame))
			case !control:
				mu.Lock()
				all = append(all, tapped(frame))
				mu.Unlock()
			}
		}
	}()
	return path, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// TestDnstap compares the messages that dnstap sends.
func TestDnstap(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "::1", "mapped"} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			bind, ask := "bind "+host, host
			if host == "mapped" {
				bind, ask = "", "127.0.0.1"
			}
			var p [2]*instance
			var frames [2]func() []string
			zone := tempFile(t, "db.example.org", exampleZone)
			up := startUpstream(t, 3600)
			for v := range variants {
				path, f := tapServer(t)
				frames[v] = f
				p[v] = startVariant(t, strings.NewReplacer("BIND", bind, "SOCKET", path, "ZONE", zone, "UPSTREAM", up.addr).Replace(`.:PORT {
	BIND
	FASTUDP
	dnstap SOCKET full
	file ZONE example.org
	forward . UPSTREAM
}
`), v)
			}
			c := newClientTo(t, mustAddrPort(p[0].addr(ask)), mustAddrPort(p[1].addr(ask)))
			for _, qtype := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeANY, dns.TypeMX} {
				for _, name := range []string{"www.example.org.", "big.example.org.", "forwarded."} {
					for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify} {
						if opcode == dns.OpcodeNotify && name != "forwarded." {
							continue // file is silent
						}
						m := withEdns(question(name, qtype), 1232)
						m.Opcode = opcode
						a := c.ask(t, 2*time.Second, pack(m))[0]
						if !equal(a) || a[0] == nil {
							t.Errorf("the answers differ\n%s", showBoth(a))
						}
					}
				}
			}
			count := func(v int) int { return len(frames[v]()) }
			eventually(t, "both have sent as much", 5*time.Second, func() bool { return count(0) >= 48 && count(0) == count(1) })
			all := [2][]string{frames[0](), frames[1]()}
			for v := range all {
				slices.Sort(all[v]) // the message about an answer may come after that about the next query
			}
			for i, a := range all[0] {
				if b := all[1][i]; a != b {
					t.Errorf("message %d: stock %s, fastudp %s", i, a, b)
				}
			}
		})
	}
}

// TestCacheRefreshes compares how often the upstream is asked with prefetch and with serve_stale.
func TestCacheRefreshes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, cache string
		ttl         uint32
		steps       func(t *testing.T, ask func() string, u *upstream) []string
	}{
		{"prefetch", "prefetch 1 1m 90%", 10, func(t *testing.T, ask func() string, u *upstream) (story []string) {
			story = append(story, ask(), fmt.Sprint(u.count("a.")))
			story = append(story, ask(), fmt.Sprint(u.count("a.")))
			time.Sleep(2100 * time.Millisecond) // less than 90 % of the TTL is left
			story = append(story, strings.Split(ask(), "\t")[0])
			eventually(t, "a prefetch", 5*time.Second, func() bool { return u.count("a.") == 2 })
			return append(story, fmt.Sprint(u.count("a.")))
		}},
		{"serve_stale immediate", "success 1024 1 1\nserve_stale 1h immediate", 1, func(t *testing.T, ask func() string, u *upstream) (story []string) {
			story = append(story, ask(), fmt.Sprint(u.count("a.")))
			time.Sleep(2100 * time.Millisecond)
			story = append(story, ask()) // stale, TTL 0
			eventually(t, "a refresh", 5*time.Second, func() bool { return u.count("a.") == 2 })
			u.setFail(true)
			time.Sleep(2100 * time.Millisecond)
			story = append(story, ask())
			eventually(t, "a try to refresh", 5*time.Second, func() bool { return u.count("a.") == 3 })
			return append(story, ask())
		}},
		{"serve_stale verify", "success 1024 1 1\nserve_stale 1h verify", 1, func(t *testing.T, ask func() string, u *upstream) (story []string) {
			story = append(story, ask(), fmt.Sprint(u.count("a.")))
			time.Sleep(2100 * time.Millisecond)
			story = append(story, ask(), fmt.Sprint(u.count("a."))) // fresh
			u.setFail(true)
			time.Sleep(2100 * time.Millisecond)
			return append(story, ask(), fmt.Sprint(u.count("a."))) // stale
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var stories [2][]string
			var wg sync.WaitGroup
			for v := range variants {
				u := startUpstream(t, c.ttl)
				i := startVariant(t, block("cache {\n"+c.cache+"\n}\nforward . "+u.addr), v)
				conn := dialUDP(t, i.addr("127.0.0.1"))
				ask := func() string {
					conn.Write(pack(question("a.", dns.TypeA)))
					conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					b := make([]byte, 512)
					n, err := conn.Read(b)
					if err != nil {
						return err.Error()
					}
					m := new(dns.Msg)
					if err := m.Unpack(b[:n]); err != nil || len(m.Answer) == 0 {
						return fmt.Sprint(err, m)
					}
					return m.Answer[0].String()
				}
				wg.Go(func() { stories[v] = c.steps(t, ask, u) })
			}
			wg.Wait()
			if !slices.Equal(stories[0], stories[1]) {
				t.Errorf("stock %q, fastudp %q", stories[0], stories[1])
			}
		})
	}
}

// TestPanics compares handlers that panic: recovered, or with debug the end of the process.
func TestPanics(t *testing.T) { // not parallel: panics are counted for the whole process
	handle(t, "panics", func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) { panic("the handler panics") })
	for _, plugins := range []string{"handler panics", "errors\nhandler panics", "shed\nhandler panics"} {
		p := startPair(t, block(plugins))
		for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify} {
			m := question("a.", dns.TypeA)
			m.Opcode = opcode
			before := counter(t, "coredns_panics_total")
			c := newClient(t, p)
			for range 200 { // more than may leak of anything that is bounded
				a := c.ask(t, 5*time.Second, pack(m))[0]
				if !equal(a) || a[0] == nil {
					t.Fatalf("%s: the answers differ\n%s", plugins, showBoth(a))
				}
				if r := unpack(t, a[0]); r.Rcode != dns.RcodeServerFailure {
					t.Fatalf("%s: answer %s", plugins, r)
				}
			}
			if n := counter(t, "coredns_panics_total") - before; n != 400 {
				t.Errorf("%s: %v panics are counted, want 400", plugins, n)
			}
		}
		for name, v := range metrics(t, "coredns_fastudp_inflight_queries", p[fast]) {
			if v != 0 {
				t.Errorf("%s: %s is %v after the panics", plugins, name, v)
			}
		}
	}
}

// TestDebugDies has a handler panic in a child with debug.
func TestDebugDies(t *testing.T) {
	t.Parallel()
	for _, opcode := range []int{dns.OpcodeQuery, dns.OpcodeNotify} {
		for v := range variants {
			t.Run(fmt.Sprintf("%s %s", dns.OpcodeToString[opcode], variants[v]), func(t *testing.T) {
				t.Parallel()
				c := startChild(t, block("debug\nhandler panic"), v)
				m := question("a.", dns.TypeA)
				m.Opcode = opcode
				dialUDP(t, fmt.Sprintf("127.0.0.1:%d", c.port)).Write(pack(m))
				select {
				case <-c.ended:
				case <-time.After(10 * time.Second):
					t.Fatal("the process lives on")
				}
				if code := c.cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(c.stderr.String(), "panic: the handler panics") {
					t.Errorf("exit code %d, stderr %s", code, c.stderr.String())
				}
			})
		}
	}
}

// TestLoopDies forwards to itself, in a child, which loop notices and ends.
func TestLoopDies(t *testing.T) {
	t.Parallel()
	for v := range variants {
		t.Run(variants[v], func(t *testing.T) {
			t.Parallel()
			c := startChild(t, block("loop\nforward . 127.0.0.1:PORT"), v)
			select {
			case <-c.ended:
			case <-time.After(10 * time.Second):
				t.Fatal("the process lives on")
			}
			if code := c.cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit code %d, stderr %s", code, c.stderr.String())
			}
		})
	}
}

// TestNoLoop has loop look at a forwarder that does not come back.
func TestNoLoop(t *testing.T) {
	t.Parallel()
	p := startPair(t, fill(t, block("loop\nforward . UPSTREAM")))
	c := newClient(t, p)
	for _, qtype := range []uint16{dns.TypeA, dns.TypeHINFO, dns.TypeTXT} {
		if a := c.same(t, "no loop", pack(question("a.", qtype))); a == nil {
			t.Error("silence")
		}
	}
}
