package fastudp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// ioKind is one way to do the I/O of a socket. All of them go through the tests of this file.
type ioKind struct {
	name    string
	open    func(c *net.UDPConn, pktinfo bool, packets []packet, batch int, count *counters) (packetIO, error)
	exact   bool // tells a datagram of maxQuery bytes from a longer one
	receive string
	send    string // the functions' names in a stack trace
}

var ioKinds = []ioKind{{
	name: "single",
	open: func(c *net.UDPConn, pktinfo bool, _ []packet, _ int, count *counters) (packetIO, error) {
		return newSingleIO(c, pktinfo, count), nil
	},
	receive: "fastudp.(*singleIO).receive",
	send:    "fastudp.(*singleIO).send",
}}

func eachIO(t *testing.T, f func(t *testing.T, k ioKind)) {
	for _, k := range ioKinds {
		t.Run(k.name, func(t *testing.T) { f(t, k) })
	}
}

// ioLimit ends a test whose socket calls wait for ever.
const ioLimit = 20 * time.Second

// testSocket is a real socket with its I/O.
type testSocket struct {
	packetIO
	udp     *net.UDPConn
	packets []packet
	count   *counters
}

func openTestSocket(t *testing.T, k ioKind, addr string, pktinfo bool, batch int) *testSocket {
	t.Helper()
	// Not of openSocket: port 0 with SO_REUSEPORT may be one that another such socket has, and for
	// "udp" a wildcard is a socket of both families where it can be.
	network := "udp4"
	if strings.HasPrefix(addr, "[") {
		network = "udp"
	}
	p, err := net.ListenPacket(network, addr)
	if err != nil {
		if network == "udp" {
			t.Skipf("no IPv6: %v", err)
		}
		t.Fatal(err)
	}
	c := p.(*net.UDPConn)
	c.SetReadBuffer(1 << 20)
	return newTestSocket(t, k, c, pktinfo, batch)
}

func newTestSocket(t *testing.T, k ioKind, c *net.UDPConn, pktinfo bool, batch int) *testSocket {
	t.Helper()
	t.Cleanup(func() { c.Close() })
	if pktinfo {
		if err := setPktinfo(c); err != nil {
			t.Fatal(err)
		}
	}
	s := &testSocket{udp: c, count: new(counters)}
	s.packets = newPackets(batch)
	var err error
	if s.packetIO, err = k.open(c, pktinfo, s.packets, batch, s.count); err != nil {
		t.Fatal(err)
	}
	watch := time.AfterFunc(ioLimit, s.close)
	t.Cleanup(func() {
		watch.Stop()
		s.close()
	})
	return s
}

func (s *testSocket) port() uint16 { return s.udp.LocalAddr().(*net.UDPAddr).AddrPort().Port() }

// at is the socket's port at address ip.
func (s *testSocket) at(ip string) *net.UDPAddr {
	return net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), s.port()))
}

// next receives one or more datagrams and returns copies.
func (s *testSocket) next(t *testing.T) []packet {
	t.Helper()
	n, _, err := s.receive(s.packets, true)
	if err != nil || n == 0 {
		t.Fatalf("received %d, %v", n, err)
	}
	got := make([]packet, n)
	for i, p := range s.packets[:n] {
		got[i] = packet{data: bytes.Clone(p.data), long: p.long, peer: p.peer}
	}
	return got
}

func (s *testSocket) nextN(t *testing.T, n int) (got []packet) {
	t.Helper()
	for len(got) < n {
		got = append(got, s.next(t)...)
	}
	if len(got) != n {
		t.Fatalf("%d datagrams instead of %d", len(got), n)
	}
	return got
}

// dialTest makes a client of to; it takes answers from just that address and port.
func dialTest(t *testing.T, to *net.UDPAddr) *net.UDPConn {
	t.Helper()
	c, err := net.DialUDP("udp", nil, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetReadBuffer(1 << 20)
	c.SetReadDeadline(time.Now().Add(ioLimit))
	return c
}

func mustWrite(t *testing.T, c *net.UDPConn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, c *net.UDPConn) []byte {
	t.Helper()
	b := make([]byte, 65536)
	n, err := c.Read(b)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	return b[:n]
}

// wantAnswers reads as many answers as are wanted and compares them in any order: datagrams may
// overtake one another even on the loopback interface, on their way through two processors.
func wantAnswers(t *testing.T, c *net.UDPConn, want ...[]byte) {
	t.Helper()
	left := make(map[string]int)
	for _, w := range want {
		left[string(w)]++
	}
	for range want {
		got := mustRead(t, c)
		if left[string(got)]--; left[string(got)] < 0 {
			t.Fatalf("an answer of %d bytes that is not wanted, or not again: %.20x", len(got), got)
		}
	}
}

func answerTo(p packet, data []byte) *reply { return &reply{buf: bytes.Clone(data), peer: p.peer} }

// waitParked returns when a goroutine waits for the network in function fn.
func waitParked(t *testing.T, fn string) {
	t.Helper()
	for end := time.Now().Add(ioLimit); time.Now().Before(end); runtime.Gosched() {
		for g := range strings.SplitSeq(goroutines(), "\n\n") {
			head, rest, _ := strings.Cut(g, "\n")
			if strings.Contains(head, "[IO wait") && strings.Contains(rest, fn) {
				return
			}
		}
	}
	t.Fatalf("no goroutine waits in %s", fn)
}

// TestSocketAddresses asks a socket of each kind by each address that it has, and answers.
func TestSocketAddresses(t *testing.T) {
	for _, tt := range []struct {
		listen  string
		pktinfo bool
		ask     string
	}{
		{"127.0.0.1:0", false, "127.0.0.1"},
		{"0.0.0.0:0", true, "127.0.0.1"},
		{"0.0.0.0:0", true, "127.0.0.2"},
		{"[::1]:0", false, "::1"},
		{"[::]:0", true, "::1"},
		{"[::]:0", true, "127.0.0.1"},
		{"[::]:0", true, "127.0.0.2"},
		{"[::]:0", false, "127.0.0.1"},
		{"[::]:0", false, "::1"},
	} {
		t.Run(fmt.Sprintf("%s at %s pktinfo %v", tt.ask, tt.listen, tt.pktinfo), func(t *testing.T) {
			if tt.ask == "127.0.0.2" && runtime.GOOS != "linux" {
				t.Skip("only Linux has all of 127.0.0.0/8 on its loopback interface")
			}
			eachIO(t, func(t *testing.T, k ioKind) {
				s := openTestSocket(t, k, tt.listen, tt.pktinfo, 8)
				// Twice: what the kernel wrote into the headers the first time must not matter.
				for _, text := range []string{"a first query", "another"} {
					c := dialTest(t, s.at(tt.ask))
					mustWrite(t, c, []byte(text))
					p := s.nextN(t, 1)[0]
					if string(p.data) != text || p.long {
						t.Errorf("got %q, long %v", p.data, p.long)
					}
					if want := c.LocalAddr().(*net.UDPAddr).AddrPort(); p.peer.addr != netip.AddrPortFrom(want.Addr().Unmap(), want.Port()) {
						t.Errorf("from %v, want %v", p.peer.addr, want)
					}
					var want netip.Addr
					if tt.pktinfo {
						want = netip.MustParseAddr(tt.ask)
					}
					if p.peer.local.Unmap() != want {
						t.Errorf("asked at %v, want %v", p.peer.local, want)
					}
					// The client's socket is connected: an answer from elsewhere does not reach it.
					if err := s.send([]*reply{answerTo(p, []byte("an answer"))}); err != nil {
						t.Fatal(err)
					}
					if got := mustRead(t, c); string(got) != "an answer" {
						t.Errorf("the answer is %q", got)
					}
				}
				if s.count.sent.Load() != 2 || s.count.sendErrs != nil {
					t.Errorf("%d sent, errors %v", s.count.sent.Load(), s.count.sendErrs)
				}
			})
		})
	}
}

// linkLocal finds an address of this machine that needs a zone.
func linkLocal(t *testing.T) netip.Addr {
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifs {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast() && i.Flags&net.FlagUp != 0 {
				ip, _ := netip.AddrFromSlice(n.IP)
				return ip.WithZone(i.Name)
			}
		}
	}
	t.Skip("no interface has an IPv6 link-local address")
	return netip.Addr{}
}

// TestSocketZone asks by a link-local address: the client's address has its zone, and the answer needs it.
func TestSocketZone(t *testing.T) {
	a := linkLocal(t)
	eachIO(t, func(t *testing.T, k ioKind) {
		for _, pktinfo := range []bool{false, true} {
			s := openTestSocket(t, k, "[::]:0", pktinfo, 8)
			c := dialTest(t, s.at(a.String()))
			mustWrite(t, c, []byte("query"))
			p := s.nextN(t, 1)[0]
			if want := c.LocalAddr().(*net.UDPAddr).AddrPort(); p.peer.addr != want {
				t.Errorf("from %v, want %v", p.peer.addr, want)
			}
			if pktinfo && p.peer.local.WithZone("") != a.WithZone("") {
				t.Errorf("asked at %v, want %v", p.peer.local, a)
			}
			s.send([]*reply{answerTo(p, []byte("answer"))})
			if got := mustRead(t, c); string(got) != "answer" {
				t.Errorf("the answer is %q; errors %v", got, s.count.sendErrs)
			}
		}
	})
}

// TestSocketLengths receives and returns datagrams of all lengths that matter. Of what is longer
// than maxQuery the beginning is kept.
func TestSocketLengths(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		s := openTestSocket(t, k, "127.0.0.1:0", false, 4)
		c := dialTest(t, s.at("127.0.0.1"))
		lengths := []int{maxQuery + 1, 0, 1, maxPayload4, headerSize, 512, maxQuery, 1232, maxQuery - 1, 9000, 0, 3}
		body := make([]byte, maxPayload4)
		for i := range body {
			body[i] = byte(i * 7)
		}
		for _, n := range lengths {
			if n > 9000 && runtime.GOOS != "linux" {
				continue // others send less by default
			}
			mustWrite(t, c, body[:n])
			p := s.nextN(t, 1)[0]
			if want := body[:min(n, maxQuery)]; !bytes.Equal(p.data, want) {
				t.Errorf("length %d: got %d bytes, or others", n, len(p.data))
			}
			if want := n > maxQuery || (n == maxQuery && !k.exact); p.long != want {
				t.Errorf("length %d: long is %v", n, p.long)
			}
			if p.peer.addr != c.LocalAddr().(*net.UDPAddr).AddrPort() {
				t.Errorf("length %d: from %v", n, p.peer.addr)
			}
			s.send([]*reply{answerTo(p, body[:n])})
			if got := mustRead(t, c); !bytes.Equal(got, body[:n]) {
				t.Errorf("an answer of %d bytes arrives as %d, or others", n, len(got))
			}
		}
	})
}

// TestSocketNoWait looks at an empty socket.
func TestSocketNoWait(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		s := openTestSocket(t, k, "127.0.0.1:0", false, 4)
		for range 3 {
			if n, waited, err := s.receive(s.packets, false); n != 0 || waited || err != nil {
				t.Fatalf("an empty socket gives %d, %v, %v", n, waited, err)
			}
		}
		c := dialTest(t, s.at("127.0.0.1"))
		for i := range 3 {
			mustWrite(t, c, []byte{byte(i)})
		}
		got := make(map[string]bool)
		for len(got) < 3 {
			n, _, err := s.receive(s.packets, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range s.packets[:n] {
				if len(p.data) != 1 || p.data[0] > 2 || got[string(p.data)] {
					t.Fatalf("a datagram %v that was not sent, or not twice", p.data)
				}
				got[string(p.data)] = true
			}
		}
		if n, _, err := s.receive(s.packets, false); n != 0 || err != nil {
			t.Fatalf("an empty socket gives %d, %v", n, err)
		}
	})
}

type received struct {
	n      int
	waited bool
	err    error
}

func (s *testSocket) receiveAsync() chan received {
	c := make(chan received, 1)
	go func() {
		n, waited, err := s.receive(s.packets, true)
		c <- received{n, waited, err}
	}()
	return c
}

// TestSocketInterrupt ends one waiting receive and no other, whether it has begun to wait or not, and
// loses no datagram.
func TestSocketInterrupt(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		s := openTestSocket(t, k, "127.0.0.1:0", false, 4)
		c := dialTest(t, s.at("127.0.0.1"))
		for range 3 {
			r := s.receiveAsync()
			waitParked(t, k.receive)
			s.interrupt()
			if got := <-r; got.n != 0 || !errors.Is(got.err, os.ErrDeadlineExceeded) {
				t.Fatalf("interrupted while waiting: %+v", got)
			}
			mustWrite(t, c, []byte("one"))
			s.interrupt()
			if n, _, err := s.receive(s.packets, true); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("interrupted before it waits: %d, %v", n, err)
			}
			s.nextN(t, 1)
			r = s.receiveAsync()
			waitParked(t, k.receive)
			mustWrite(t, c, []byte("two"))
			if got := <-r; got.n != 1 || got.err != nil {
				t.Fatalf("after an interrupt: %+v", got)
			}
		}
	})
}

// TestSocketClose closes the socket under a waiting receive, and tries all calls on a closed one.
func TestSocketClose(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		s := openTestSocket(t, k, "127.0.0.1:0", false, 4)
		r := s.receiveAsync()
		waitParked(t, k.receive)
		s.close()
		if got := <-r; got.n != 0 || !errors.Is(got.err, net.ErrClosed) {
			t.Errorf("closed while waiting: %+v", got)
		}
		for _, wait := range []bool{true, false} {
			if n, _, err := s.receive(s.packets, wait); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("receive on a closed socket: %d, %v", n, err)
			}
		}
		rs := []*reply{{buf: []byte("a"), peer: testPeer(1)}, {buf: []byte("b"), peer: testPeer(2)}, {buf: []byte("c"), peer: testPeer(3)}}
		if err := s.send(rs); !errors.Is(err, net.ErrClosed) {
			t.Errorf("send on a closed socket: %v", err)
		}
		if want := map[string]uint64{"closed": 3}; !reflect.DeepEqual(s.count.sendErrs, want) {
			t.Errorf("send errors counted: %v, want %v", s.count.sendErrs, want)
		}
		s.pause() // must not wait
		s.interrupt()
		s.detach()
	})
}

// TestSocketSendMany sends more responses than fit into one system call, of different lengths.
func TestSocketSendMany(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		for _, n := range []int{1, 15, 16, 17, 200} {
			s := openTestSocket(t, k, "127.0.0.1:0", false, 16)
			c := dialTest(t, s.at("127.0.0.1"))
			mustWrite(t, c, []byte("query"))
			p := s.nextN(t, 1)[0]
			var rs []*reply
			var want [][]byte
			for i := range n {
				want = append(want, append(bytes.Repeat([]byte{'x'}, i), byte(i)))
				rs = append(rs, answerTo(p, want[i]))
			}
			if err := s.send(rs); err != nil {
				t.Fatal(err)
			}
			wantAnswers(t, c, want...)
			if got := s.count.sent.Load(); got != uint64(n) || s.count.sendErrs != nil {
				t.Errorf("%d sent, errors %v", got, s.count.sendErrs)
			}
		}
	})
}

// realEngine serves s with an echo of every message.
func realEngine(t *testing.T, s *testSocket, batch int) *engine {
	e := newEngine(s.packetIO, Options{Batch: batch, FairnessCap: defaultFairnessCap}, nil, s.packets, s.count, func(e *engine, p *packet) {
		r := newReply()
		r.buf, r.peer = append(r.buf[:0], p.data...), p.peer
		e.took()
		e.out.add(r)
	})
	t.Cleanup(func() {
		if !e.stopping.Load() {
			stopEngine(e)
		}
	})
	return e
}

// TestSocketEngine runs an engine on a real socket, stops it with datagrams queued, and finds all of
// them answered.
func TestSocketEngine(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		const clients, each = 4, 50
		s := openTestSocket(t, k, "127.0.0.1:0", false, 8)
		e := realEngine(t, s, 8)
		var cs []*net.UDPConn
		for range clients {
			cs = append(cs, dialTest(t, s.at("127.0.0.1")))
		}
		ask := func() {
			for i := range each {
				for _, c := range cs {
					mustWrite(t, c, []byte{byte(i)})
				}
			}
		}
		ask()
		e.start()
		var want [][]byte
		for i := range each {
			want = append(want, []byte{byte(i)})
		}
		for _, c := range cs {
			wantAnswers(t, c, want...)
		}
		if n := s.count.received.Load(); n != clients*each {
			t.Errorf("%d received", n)
		}
		ask()
		stopEngine(e)
		for _, c := range cs {
			wantAnswers(t, c, want...)
		}
		if n := s.count.sent.Load(); n != 2*clients*each {
			t.Errorf("%d sent", n)
		}
	})
}
