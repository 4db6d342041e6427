package fastudp

import (
	"encoding/binary"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSocketSendErrors puts responses that cannot be sent between others: these arrive all the
// same, and each error counts under its own name.
func TestSocketSendErrors(t *testing.T) {
	for _, tt := range []struct {
		listen, ask string
		pktinfo     bool
		most        int
	}{
		{"127.0.0.1:0", "127.0.0.1", false, maxPayload4},
		{"0.0.0.0:0", "127.0.0.1", true, maxPayload4},
		{"[::1]:0", "::1", false, maxPayload6},
		{"[::]:0", "127.0.0.1", true, maxPayload4},
	} {
		t.Run(tt.listen+" "+tt.ask, func(t *testing.T) {
			eachIO(t, func(t *testing.T, k ioKind) {
				for _, bad := range [][]int{{0}, {3}, {11}, {0, 11}, {3, 4}, {4, 3}, {3, 7, 8}, {0, 1, 2, 3}, {8, 9, 10, 11}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}} {
					s := openTestSocket(t, k, tt.listen, tt.pktinfo, 8)
					c := dialTest(t, s.at(tt.ask))
					mustWrite(t, c, []byte("query"))
					p := s.nextN(t, 1)[0]
					var rs []*reply
					want := make(map[string]uint64)
					var good [][]byte
					for i := range 12 {
						r := answerTo(p, []byte{byte(i)})
						rs = append(rs, r)
						switch j := len(want); {
						case !slices.Contains(bad, i):
							good = append(good, []byte{byte(i)})
						case (i+j)%2 == 0:
							r.peer.addr = netip.AddrPortFrom(r.peer.addr.Addr(), 0)
							want["EINVAL"]++
						default:
							r.buf = make([]byte, tt.most+1)
							want["EMSGSIZE"]++
						}
					}
					if err := s.send(rs); err != nil {
						t.Fatal(err)
					}
					wantAnswers(t, c, good...)
					if !reflect.DeepEqual(s.count.sendErrs, want) {
						t.Errorf("bad %v: errors counted %v, want %v", bad, s.count.sendErrs, want)
					}
					if got := s.count.sent.Load(); got != uint64(len(good)) {
						t.Errorf("bad %v: %d sent, want %d", bad, got, len(good))
					}
				}
			})
		})
	}
}

// TestSourcePortZero sends a query from port 0, which only a raw socket can: its answer cannot be
// sent, and those of the same batch are.
func TestSourcePortZero(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
		if err != nil {
			t.Skipf("a raw socket takes CAP_NET_RAW: %v", err)
		}
		defer unix.Close(raw)
		s := openTestSocket(t, k, "127.0.0.1:0", false, 64)
		c := dialTest(t, s.at("127.0.0.1"))
		var want [][]byte
		for i := range 20 {
			if i%10 != 5 {
				want = append(want, []byte{byte(i)})
				mustWrite(t, c, want[len(want)-1])
				continue
			}
			b := binary.BigEndian.AppendUint16([]byte{0, 0}, s.port()) // source port 0
			b = append(b, 0, 9, 0, 0, byte(i))                         // length, no checksum
			if err := unix.Sendto(raw, b, 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				t.Fatal(err)
			}
		}
		e := realEngine(t, s, 64)
		e.start()
		wantAnswers(t, c, want...)
		stopEngine(e)
		if n := s.count.received.Load(); n != 20 {
			t.Errorf("%d received", n)
		}
		if want := map[string]uint64{"EINVAL": 2}; !reflect.DeepEqual(s.count.sendErrs, want) {
			t.Errorf("errors counted %v, want %v", s.count.sendErrs, want)
		}
		if n := s.count.sent.Load(); n != 18 {
			t.Errorf("%d sent", n)
		}
	})
}
