package fastudp

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/ipv4"

	"github.com/miekg/dns"
)

// The parts of a query's way, each for itself. Every operation is one message, in batches of 64.

const benchBatch = 64

// benchSocket is a socket that has benchBatch queries in its receive queue whenever fill has run.
type benchSocket struct {
	io      *mmsgIO
	packets []packet
	clients []*net.UDPConn
	fill    func()
}

func newBenchSocket(b *testing.B, clients int) *benchSocket {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	c.SetReadBuffer(1 << 20)
	s := &benchSocket{packets: newPackets(benchBatch)}
	if s.io, err = newMmsgIO(c, false, s.packets, benchBatch, new(counters)); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.io.close)
	query := wire(b, new(dns.Msg).SetQuestion("whoami.example.", dns.TypeA).SetEdns0(1232, false))
	for range clients {
		conn, err := net.DialUDP("udp4", nil, c.LocalAddr().(*net.UDPAddr))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		s.clients = append(s.clients, conn)
	}
	s.fill = func() {
		for i := range benchBatch {
			s.clients[i%clients].Write(query)
		}
	}
	return s
}

// batches runs f for each benchBatch operations, with the clock stopped in prepare.
func batches(b *testing.B, prepare, f func()) {
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += benchBatch {
		b.StopTimer()
		prepare()
		b.StartTimer()
		f()
	}
}

func BenchmarkReceive(b *testing.B) {
	b.Run("recvmmsg", func(b *testing.B) {
		s := newBenchSocket(b, 8)
		batches(b, s.fill, func() {
			if n, _, err := s.io.receive(s.packets, true); n != benchBatch {
				b.Fatal(n, err)
			}
		})
	})
	b.Run("x-net", func(b *testing.B) {
		s := newBenchSocket(b, 8)
		p := ipv4.NewPacketConn(s.io.udp)
		msgs := make([]ipv4.Message, benchBatch)
		for i := range msgs {
			msgs[i].Buffers = [][]byte{make([]byte, maxQuery)}
		}
		batches(b, s.fill, func() {
			if n, err := p.ReadBatch(msgs, 0); n != benchBatch {
				b.Fatal(n, err)
			}
		})
	})
	b.Run("recvfrom", func(b *testing.B) {
		s := newBenchSocket(b, 8)
		buf := make([]byte, maxQuery)
		batches(b, s.fill, func() {
			for range benchBatch {
				if _, _, err := s.io.udp.ReadFromUDPAddrPort(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

// BenchmarkSend sends responses of 100 octets to so many clients in turn.
func BenchmarkSend(b *testing.B) {
	responses := func(s *benchSocket) (rs []*reply) {
		for i := range benchBatch {
			to := s.clients[i%len(s.clients)].LocalAddr().(*net.UDPAddr).AddrPort()
			rs = append(rs, &reply{buf: make([]byte, 100), peer: peer{addr: netip.AddrPortFrom(to.Addr().Unmap(), to.Port())}})
		}
		return rs
	}
	for name, clients := range map[string]int{"4clients": 4, "64clients": 64} {
		b.Run("sendmmsg/"+name, func(b *testing.B) {
			s := newBenchSocket(b, clients)
			rs := responses(s)
			batches(b, func() {}, func() { s.io.send(rs) })
		})
		b.Run("x-net/"+name, func(b *testing.B) {
			s := newBenchSocket(b, clients)
			p := ipv4.NewPacketConn(s.io.udp)
			var msgs []ipv4.Message
			for _, r := range responses(s) {
				msgs = append(msgs, ipv4.Message{Buffers: [][]byte{r.buf}, Addr: net.UDPAddrFromAddrPort(r.peer.addr)})
			}
			batches(b, func() {}, func() {
				if n, err := p.WriteBatch(msgs, 0); n != benchBatch {
					b.Fatal(n, err)
				}
			})
		})
		b.Run("sendto/"+name, func(b *testing.B) {
			s := newBenchSocket(b, clients)
			rs := responses(s)
			batches(b, func() {}, func() {
				for _, r := range rs {
					s.io.udp.WriteToUDPAddrPort(r.buf, r.peer.addr)
				}
			})
		})
	}
}

// nullIO sends nothing and is closed after a number of batches.
type nullIO struct {
	packetIO
	query []byte
	left  int
}

func (n *nullIO) receive(ps []packet, _ bool) (int, bool, error) {
	if n.left <= 0 {
		return 0, false, nil
	}
	n.left--
	for i := range ps {
		ps[i].data = append(ps[i].data[:0], n.query...)
		ps[i].peer.addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(i+1))
	}
	return len(ps), false, nil
}
func (n *nullIO) send([]*reply) error { return nil }
func (n *nullIO) pause()              {}

// BenchmarkEngine claims, unpacks, dispatches, packs and queues, with no system call and a handler
// that does nothing or answers with the question.
func BenchmarkEngine(b *testing.B) {
	for _, h := range []struct {
		name   string
		handle handlerOf
	}{
		{"silent", func(dns.ResponseWriter, *dns.Msg) {}},
		{"answer", func(w dns.ResponseWriter, r *dns.Msg) {
			r.Response = true
			w.WriteMsg(r)
		}},
	} {
		b.Run(h.name, func(b *testing.B) {
			packets := newPackets(benchBatch)
			io := &nullIO{query: wire(b, new(dns.Msg).SetQuestion("whoami.example.", dns.TypeA)), left: (b.N + benchBatch - 1) / benchBatch}
			l := &listener{handler: h.handle, ctx: context.Background()}
			e := newEngine(io, Options{Batch: benchBatch, FairnessCap: 256}, newBudget(defaultMaxInflight, 1), packets, new(counters), l.serve)
			e.stopping.Store(true)
			e.drainTill.Store(1 << 62)
			b.ReportAllocs()
			b.ResetTimer()
			e.start()
			<-e.readDone
			b.StopTimer()
			e.dismiss()
			<-e.done
		})
	}
}

func BenchmarkUnpack(b *testing.B) {
	for name, q := range map[string][]byte{
		"plain": wire(b, new(dns.Msg).SetQuestion("whoami.example.", dns.TypeA)),
		"EDNS":  wire(b, new(dns.Msg).SetQuestion("whoami.example.", dns.TypeA).SetEdns0(1232, true)),
	} {
		b.Run("ours/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				unpackMessage(q)
			}
		})
		b.Run("library/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				new(dns.Msg).Unpack(q)
			}
		})
	}
}
