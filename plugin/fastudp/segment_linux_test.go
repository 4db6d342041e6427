package fastudp

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
)

// TestGrouping checks random responses against what UDP_SEGMENT takes.
func TestGrouping(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	peers := make([]peer, 200)
	for i := range peers {
		a := netip.AddrFrom4([4]byte{192, 0, 2, byte(rnd.IntN(8))})
		if i%3 == 0 {
			a = netip.AddrFrom16([16]byte{0x20, 1, 15: byte(rnd.IntN(8))})
		}
		peers[i].addr = netip.AddrPortFrom(a, uint16(rnd.IntN(4)+1000))
		if i%5 == 0 {
			peers[i].local = netip.AddrFrom4([4]byte{10, 0, 0, byte(rnd.IntN(2))})
		}
	}
	joined := 0
	for round := range 3000 {
		n, clients, lengths := 1+rnd.IntN(200), 1+rnd.IntN(len(peers)), 1+rnd.IntN(4)
		g := newGrouping(n)
		var rs []*reply
		for range n {
			length := []int{100, 1232, 1300, 40}[rnd.IntN(lengths)]
			if rnd.IntN(20) == 0 {
				length = rnd.IntN(1500)
			}
			rs = append(rs, &reply{buf: make([]byte, length), peer: peers[rnd.IntN(clients)]})
		}
		g.group(rs)
		left := make(map[*reply]bool)
		for _, r := range rs {
			left[r] = true
		}
		rest := g.sorted
		for _, parts := range g.parts {
			message := rest[:parts]
			rest = rest[parts:]
			size := 0
			for i, r := range message {
				if !left[r] {
					t.Fatalf("round %d: a response twice", round)
				}
				delete(left, r)
				size += len(r.buf)
				switch first := message[0]; {
				case parts == 1:
				case r.peer != first.peer:
					t.Fatalf("round %d: two clients in one message", round)
				case len(r.buf) == 0 || len(r.buf) > len(first.buf) || len(r.buf) != len(first.buf) && i != parts-1:
					t.Fatalf("round %d: segment %d of %d has %d octets, the first %d", round, i, parts, len(r.buf), len(first.buf))
				}
			}
			if parts > 1 {
				joined++
				if parts > maxSegments || size > maxSegmented || len(message[0].buf) > maxSegment {
					t.Fatalf("round %d: %d segments, %d octets, the first %d", round, parts, size, len(message[0].buf))
				}
			}
		}
		if len(left) != 0 || len(rest) != 0 {
			t.Fatalf("round %d: %d responses left out, %d left over", round, len(left), len(rest))
		}
	}
	if joined < 1000 {
		t.Errorf("only %d messages of more than one response: the test tests nothing", joined)
	}
}

// TestGroupingManyClients has clients of one address or of many, each with two responses or more: none
// parts those of another.
func TestGroupingManyClients(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for round := range 5000 {
		clients := make(map[peer]int)
		most := 1 + rnd.IntN(defaultBatch/2)
		for len(clients) < most {
			a := netip.AddrFrom4([4]byte{192, 0, 2, byte(rnd.IntN(2) * rnd.IntN(256) * (round % 2))})
			clients[peer{addr: netip.AddrPortFrom(a, uint16(32768+rnd.IntN(28000)))}] = 0
		}
		var rs []*reply
		for range 2 {
			for c := range clients {
				rs = append(rs, &reply{buf: make([]byte, 100), peer: c})
			}
		}
		g := newGrouping(len(rs))
		if g.group(rs); len(g.parts) != len(clients) {
			t.Fatalf("round %d: %d messages for %d clients", round, len(g.parts), len(clients))
		}
	}
}

// TestGroupingGivesUp checks when no look is taken.
func TestGroupingGivesUp(t *testing.T) {
	g := newGrouping(minGroup)
	if g.worthwhile(minGroup - 1) {
		t.Error("so few responses are not worth it")
	}
	var rs []*reply
	for i := range minGroup {
		rs = append(rs, &reply{buf: make([]byte, 100), peer: testPeer(i)})
	}
	if !g.worthwhile(minGroup) {
		t.Fatal("no look at the beginning")
	}
	g.group(rs)
	for i := range skipNothing {
		if g.worthwhile(minGroup) {
			t.Fatalf("look %d after one that found nothing", i)
		}
	}
	if !g.worthwhile(minGroup) {
		t.Error("no look any more")
	}
}

// manyReplies are n responses of a few lengths, by turns to each client that asked, and what each client gets.
func manyReplies(t *testing.T, s *testSocket, clients []*net.UDPConn, n int) (rs []*reply, want [][][]byte) {
	t.Helper()
	var asked []packet
	for _, c := range clients {
		mustWrite(t, c, []byte("query"))
		asked = append(asked, s.nextN(t, 1)...)
	}
	want = make([][][]byte, len(clients))
	for i := range n {
		data := bytes.Repeat([]byte{byte(i), byte(i >> 8)}, []int{50, 50, 50, 600, 40}[i/len(clients)%5])
		rs = append(rs, answerTo(asked[i%len(clients)], data))
		want[i%len(clients)] = append(want[i%len(clients)], data)
	}
	return rs, want
}

// TestSegments sends responses together over each kind of socket: every client gets each of its own once.
func TestSegments(t *testing.T) {
	for _, tt := range []struct {
		listen  string
		pktinfo bool
		ask     []string
	}{
		{"127.0.0.1:0", false, []string{"127.0.0.1"}},
		{"0.0.0.0:0", true, []string{"127.0.0.1", "127.0.0.9"}},
		{"[::1]:0", false, []string{"::1"}},
		{"[::]:0", true, []string{"::1", "127.0.0.1", "127.0.0.9"}},
	} {
		t.Run(tt.listen, func(t *testing.T) {
			s := openTestSocket(t, mmsgKind(), tt.listen, tt.pktinfo, 64)
			var clients []*net.UDPConn
			for i := range 6 {
				clients = append(clients, dialTest(t, s.at(tt.ask[i%len(tt.ask)])))
			}
			rs, want := manyReplies(t, s, clients, 300)
			if err := s.send(rs); err != nil {
				t.Fatal(err)
			}
			for i, c := range clients {
				wantAnswers(t, c, want[i]...)
			}
			if n := s.count.sent.Load(); n != uint64(len(rs)) || s.count.sendErrs != nil {
				t.Errorf("%d sent, errors %v", n, s.count.sendErrs)
			}
			if g := s.packetIO.(*mmsgIO).groups; len(g.parts) >= len(g.sorted) || g.skip != 0 {
				t.Errorf("%d messages for %d responses, %d sends to skip: nothing was sent together", len(g.parts), len(g.sorted), g.skip)
			}
		})
	}
}

// TestSegmentsRefused sends over a path whose MTU is less than a segment: the responses go out one by
// one, and so do those of the next sends.
func TestSegmentsRefused(t *testing.T) {
	inNetns(t)
	command(t, "ip link set lo mtu 700")
	s := openTestSocket(t, mmsgKind(), "127.0.0.1:0", false, 64)
	clients := []*net.UDPConn{dialTest(t, s.at("127.0.0.1")), dialTest(t, s.at("127.0.0.1"))}
	g := s.packetIO.(*mmsgIO).groups
	for round := range 3 {
		rs, want := manyReplies(t, s, clients, 60)
		for i := range rs {
			if i%10 == 3 { // another error on the way
				rs = append(rs, &reply{buf: bytes.Clone(rs[i].buf), peer: peer{addr: netip.AddrPortFrom(rs[i].peer.addr.Addr(), 0)}})
			}
		}
		if err := s.send(rs); err != nil {
			t.Fatal(err)
		}
		for i, c := range clients {
			wantAnswers(t, c, want[i]...)
		}
		sent, failed := s.count.sent.Load(), s.count.sendErrs["EINVAL"]
		if sent != uint64(60*(round+1)) || failed != uint64(6*(round+1)) {
			t.Fatalf("round %d: %d sent, errors %v", round, sent, s.count.sendErrs)
		}
	}
	if g.skip != skipRefused-2 {
		t.Errorf("%d sends to skip", g.skip)
	}
}
