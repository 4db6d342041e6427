package fastudp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	mmsg := ioKind{
		name: "mmsg",
		open: func(c *net.UDPConn, pktinfo bool, packets []packet, batch int, count *counters) (packetIO, error) {
			return newMmsgIO(c, pktinfo, packets, batch, count)
		},
		exact:   true,
		receive: "fastudp.(*mmsgIO).receive",
		send:    "fastudp.(*mmsgIO).send",
	}
	single := mmsg
	single.name = "mmsg, no segments"
	single.open = func(c *net.UDPConn, pktinfo bool, packets []packet, batch int, count *counters) (packetIO, error) {
		m, err := newMmsgIO(c, pktinfo, packets, batch, count)
		if err == nil {
			m.groups.skip = math.MaxInt
		}
		return m, err
	}
	ioKinds = append(ioKinds, single, mmsg)
}

func mmsgKind() ioKind { return ioKinds[len(ioKinds)-1] }

// waitQueued returns when n datagrams of equal size are in the receive queue, of which the first is
// there already.
func waitQueued(t *testing.T, s *testSocket, one uint64, n int) {
	t.Helper()
	for end := time.Now().Add(ioLimit); ; runtime.Gosched() {
		_, b, ok := kernelQueue(s.udp)
		if !ok || time.Now().After(end) {
			t.Fatalf("%d bytes in the queue, want %d datagrams of %d", b, n, one)
		}
		if b == uint64(n)*one && b > 0 {
			return
		}
	}
}

// oneQueued is what one datagram takes of the receive queue's memory.
func oneQueued(t *testing.T, s *testSocket) uint64 {
	t.Helper()
	for end := time.Now().Add(ioLimit); ; runtime.Gosched() {
		_, b, ok := kernelQueue(s.udp)
		if !ok || time.Now().After(end) {
			t.Fatal("no datagram arrives")
		}
		if b > 0 {
			return b
		}
	}
}

// TestReceiveBatches takes what is queued with one call, up to the batch.
func TestReceiveBatches(t *testing.T) {
	for _, batch := range []int{1, 2, 64, MaxBatch} {
		for _, queued := range []int{1, 2, 3, 100} {
			s := openTestSocket(t, mmsgKind(), "127.0.0.1:0", false, batch)
			c := dialTest(t, s.at("127.0.0.1"))
			mustWrite(t, c, []byte{0})
			one := oneQueued(t, s)
			for i := range queued - 1 {
				mustWrite(t, c, []byte{byte(i + 1)})
			}
			waitQueued(t, s, one, queued)
			seen := make(map[byte]bool)
			for len(seen) < queued {
				want := min(batch, queued-len(seen))
				n, waited, err := s.receive(s.packets, true)
				if n != want || waited || err != nil {
					t.Fatalf("batch %d, %d queued: received %d, waited %v, %v, want %d", batch, queued-len(seen), n, waited, err, want)
				}
				for _, p := range s.packets[:n] {
					if len(p.data) != 1 || int(p.data[0]) >= queued || seen[p.data[0]] {
						t.Fatalf("a datagram %v that was not sent, or not twice", p.data)
					}
					seen[p.data[0]] = true
				}
			}
			r := s.receiveAsync()
			waitParked(t, mmsgKind().receive)
			mustWrite(t, c, []byte("x"))
			if got := <-r; got != (received{1, true, nil}) {
				t.Fatalf("after a wait: %+v", got)
			}
			s.close()
		}
	}
}

// inNetns runs the rest of the test in a network namespace of its own. Sockets that it opens on the
// test's goroutine stay in there.
func inNetns(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	old, err := os.Open("/proc/thread-self/ns/net")
	if err == nil {
		err = unix.Unshare(unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		t.Skipf("a network namespace takes CAP_SYS_ADMIN: %v", err)
	}
	t.Cleanup(func() {
		// A thread that does not come back must not run other tests: it stays locked and ends with this one.
		if err := unix.Setns(int(old.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		old.Close()
		runtime.UnlockOSThread()
	})
	command(t, "ip link set lo up")
}

// command runs a command in the namespace of the thread.
func command(t *testing.T, line string) {
	t.Helper()
	args := strings.Fields(line)
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Skipf("%s: %v: %s", line, err, out)
	}
}

// slowLoopback lets bytes through only at a rate. What waits in the shaper is charged to the
// sender's buffer, so sends really find it full.
func slowLoopback(t *testing.T, rate string) {
	t.Helper()
	command(t, "tc qdisc add dev lo root tbf rate "+rate+" burst 4kb limit 10mb")
}

// smallSendBuffer gives s the least send buffer that there is.
func smallSendBuffer(t *testing.T, s *testSocket) {
	t.Helper()
	if err := control(s.udp, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1) }); err != nil {
		t.Fatal(err)
	}
}

// TestSendBufferFull sends into a full send buffer: all goes out once, in as many calls as it takes.
func TestSendBufferFull(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		inNetns(t)
		const n = 150
		s := openTestSocket(t, k, "127.0.0.1:0", false, 64)
		smallSendBuffer(t, s)
		c := dialTest(t, s.at("127.0.0.1"))
		mustWrite(t, c, []byte("query"))
		p := s.nextN(t, 1)[0]
		slowLoopback(t, "16mbit")
		full, partial := 0, 0
		if m, ok := s.packetIO.(*mmsgIO); ok {
			m.txFunc = func(fd uintptr) bool {
				before := m.txOff
				done := m.sendmmsg(fd)
				if !done {
					full++
					if m.txOff > before {
						partial++
					}
				}
				return done
			}
		}
		var rs []*reply
		var want [][]byte
		for i := range n {
			r := answerTo(p, bytes.Repeat([]byte{byte(i)}, 1200))
			if i%50 == 49 {
				r.peer = peer{addr: netip.AddrPortFrom(p.peer.addr.Addr(), 0)} // an error on the way
			} else {
				want = append(want, r.buf)
			}
			rs = append(rs, r)
		}
		if err := s.send(rs); err != nil {
			t.Fatal(err)
		}
		wantAnswers(t, c, want...)
		if got, want := s.count.sent.Load(), uint64(n-3); got != want || !reflect.DeepEqual(s.count.sendErrs, map[string]uint64{"EINVAL": 3}) {
			t.Errorf("%d sent, want %d, errors %v", got, want, s.count.sendErrs)
		}
		if k.name != "single" {
			if full == 0 || partial == 0 {
				t.Errorf("the buffer was full %d times, %d of them after a part was sent: the test tests nothing", full, partial)
			}
			if got := s.count.waits.Load(); got != uint64(full) {
				t.Errorf("%d waits counted, want %d", got, full)
			}
			if _, calls := s.count.sends.upTo(); calls <= n/64+1+3 && k.name != "mmsg" {
				t.Errorf("%d calls counted", calls)
			}
		}
	})
}

// TestSendBufferFullEngine has an engine answer into a full send buffer: nothing is dropped.
func TestSendBufferFullEngine(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		inNetns(t)
		const n = 300
		s := openTestSocket(t, k, "127.0.0.1:0", false, 64)
		smallSendBuffer(t, s)
		c := dialTest(t, s.at("127.0.0.1"))
		var want [][]byte
		for i := range n {
			want = append(want, bytes.Repeat([]byte{byte(i)}, 1000))
			mustWrite(t, c, want[i])
		}
		slowLoopback(t, "32mbit")
		e := realEngine(t, s, 64)
		e.start()
		wantAnswers(t, c, want...)
		stopEngine(e)
		if sent := s.count.sent.Load(); sent != n || s.count.sendErrs != nil {
			t.Errorf("%d sent, errors %v", sent, s.count.sendErrs)
		}
	})
}

// TestCloseWhileSending closes the socket under a send that the full buffer blocks, or sets it a
// deadline: it ends, and what was not sent is counted.
func TestCloseWhileSending(t *testing.T) {
	for _, how := range []string{"close", "deadline"} {
		t.Run(how, func(t *testing.T) {
			eachIO(t, func(t *testing.T, k ioKind) {
				inNetns(t)
				const n = 150
				s := openTestSocket(t, k, "127.0.0.1:0", false, 64)
				smallSendBuffer(t, s)
				c := dialTest(t, s.at("127.0.0.1"))
				mustWrite(t, c, []byte("query"))
				p := s.nextN(t, 1)[0]
				slowLoopback(t, "8kbit") // a datagram a second
				var rs []*reply
				for i := range n {
					rs = append(rs, answerTo(p, bytes.Repeat([]byte{byte(i)}, 1200)))
				}
				ended := make(chan error)
				go func() { ended <- s.send(rs) }()
				waitParked(t, k.send)
				want := net.ErrClosed
				if how == "close" {
					s.close()
				} else {
					s.udp.SetWriteDeadline(time.Unix(1, 0))
					want = os.ErrDeadlineExceeded
				}
				err := <-ended
				if !errors.Is(err, want) {
					t.Errorf("send ended with %v", err)
				}
				sent := s.count.sent.Load()
				if sent == 0 || !reflect.DeepEqual(s.count.sendErrs, map[string]uint64{"closed": n - sent}) {
					t.Errorf("%d of %d sent, errors %v", sent, n, s.count.sendErrs)
				}
			})
		})
	}
}

// TestUnreachable sends to where there is no route.
func TestUnreachable(t *testing.T) {
	eachIO(t, func(t *testing.T, k ioKind) {
		inNetns(t)
		s := openTestSocket(t, k, "0.0.0.0:0", true, 8)
		c := dialTest(t, s.at("127.0.0.1"))
		mustWrite(t, c, []byte("query"))
		p := s.nextN(t, 1)[0]
		lost := &reply{buf: []byte("lost"), peer: peer{addr: netip.MustParseAddrPort("192.0.2.1:53")}}
		foreign := answerTo(p, []byte("foreign"))
		foreign.peer.local = netip.MustParseAddr("192.0.2.2") // an address that we have no more
		if err := s.send([]*reply{answerTo(p, []byte("1")), lost, answerTo(p, []byte("2")), foreign, answerTo(p, []byte("3"))}); err != nil {
			t.Fatal(err)
		}
		wantAnswers(t, c, []byte("1"), []byte("2"), []byte("3"))
		if want := map[string]uint64{"ENETUNREACH": 2}; !reflect.DeepEqual(s.count.sendErrs, want) {
			t.Errorf("errors counted %v, want %v", s.count.sendErrs, want)
		}
	})
}

// TestSignals runs an engine under a hail of signals, which interrupt system calls: no datagram is lost.
func TestSignals(t *testing.T) {
	hits := make(chan os.Signal, 1)
	signal.Notify(hits, unix.SIGALRM)
	defer signal.Stop(hits)
	var seen atomic.Int64
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		for {
			select {
			case <-hits:
				seen.Add(1)
			case <-quit:
				return
			}
		}
	}()
	every := unix.Timeval{Usec: 50}
	if _, err := unix.Setitimer(unix.ITIMER_REAL, unix.Itimerval{Interval: every, Value: every}); err != nil {
		t.Skipf("no interval timer: %v", err)
	}
	defer unix.Setitimer(unix.ITIMER_REAL, unix.Itimerval{})
	eachIO(t, func(t *testing.T, k ioKind) {
		const window, rounds = 32, 60
		before := seen.Load()
		s := openTestSocket(t, k, "127.0.0.1:0", false, 16)
		e := realEngine(t, s, 16)
		e.start()
		c := dialTest(t, s.at("127.0.0.1"))
		// More rounds where the machine is busy with something else: then few signals come to us.
		for r := 0; r < rounds || seen.Load()-before < 10 && r < 100*rounds; r++ {
			for i := range window {
				mustWrite(t, c, []byte{byte(r), byte(i)})
			}
			var got [window]int
			for range window {
				b := mustRead(t, c)
				if len(b) != 2 || b[0] != byte(r) {
					t.Fatalf("round %d: an answer %v", r, b)
				}
				got[b[1]]++
			}
			for i, n := range got {
				if n != 1 {
					t.Fatalf("round %d: %d answers to %d", r, n, i)
				}
			}
		}
		stopEngine(e)
		if s.count.sendErrs != nil || s.count.recvErrs != nil {
			t.Errorf("errors counted: %v, %v", s.count.sendErrs, s.count.recvErrs)
		}
		if n := seen.Load() - before; n < 10 {
			t.Errorf("only %d signals", n)
		}
	})
}

// TestDetach takes one socket out of an SO_REUSEPORT group, whichever way the kernel picks from it:
// no more datagrams come to it, the others get all of them, and those in its queue are received and
// answered from the address that was asked.
func TestDetach(t *testing.T) {
	for _, tt := range []struct {
		listen  string
		pktinfo bool
		asks    []string
	}{
		{"127.0.0.1:0", false, []string{"127.0.0.1"}},
		{"0.0.0.0:0", true, []string{"127.0.0.1", "127.0.0.2"}},
		{"[::1]:0", false, []string{"::1"}},
		{"[::]:0", true, []string{"::1", "127.0.0.1", "127.0.0.2"}},
	} {
		for _, how := range []Steer{SteerHash, SteerCPU, SteerRandom} {
			t.Run(fmt.Sprintf("%s steer %s", tt.listen, how), func(t *testing.T) {
				const sockets, clients = 3, 60
				var ss []*testSocket
				conns, err := openSockets(tt.listen, sockets, buffers{read: 1 << 20})
				if err != nil {
					t.Skipf("no sockets on %s here: %v", tt.listen, err)
				}
				for _, c := range conns {
					ss = append(ss, newTestSocket(t, mmsgKind(), c, tt.pktinfo, 64))
				}
				if err := attachSteer(ss[0].udp, how, sockets); err != nil {
					t.Skipf("the kernel steers no sockets here (Linux 4.5): %v", err)
				}
				// collect receives n different datagrams from the sockets.
				collect := func(n int, from ...*testSocket) {
					all := make(map[byte]bool)
					for end := time.Now().Add(ioLimit); len(all) < n && time.Now().Before(end); runtime.Gosched() {
						for _, s := range from {
							k, _, err := s.receive(s.packets, false)
							if err != nil {
								t.Fatal(err)
							}
							for _, p := range s.packets[:k] {
								all[p.data[0]] = true
							}
						}
					}
					if len(all) != n {
						t.Fatalf("%d of %d datagrams arrive", len(all), n)
					}
				}
				var cs []*net.UDPConn
				for i := range clients {
					c := dialTest(t, ss[0].at(tt.asks[i%len(tt.asks)]))
					cs = append(cs, c)
					mustWrite(t, c, []byte{byte(i)})
				}
				waitAllQueued(t, clients, ss)
				// Take away the one that gets most, so that it would get some of those that come now.
				var gone *testSocket
				var rest []*testSocket
				most := uint64(0)
				for _, s := range ss {
					if _, b, _ := kernelQueue(s.udp); b > most {
						gone, most = s, b
					}
				}
				for _, s := range ss {
					if s != gone {
						rest = append(rest, s)
					}
				}
				gone.detach()
				for i, c := range cs {
					mustWrite(t, c, []byte{byte(i + 100)})
				}
				// What was in its queue is still there.
				n, _, err := gone.receive(gone.packets, false)
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					t.Fatal("nothing was queued at the socket: the test tests nothing")
				}
				late := 0
				var rs []*reply
				var answered []byte
				for _, p := range gone.packets[:n] {
					if p.data[0] >= 100 {
						late++
					}
					rs = append(rs, answerTo(p, p.data))
					answered = append(answered, p.data[0])
				}
				if late > 0 {
					t.Errorf("%d of %d datagrams came to the detached socket", late, clients)
				}
				if err := gone.send(rs); err != nil {
					t.Fatal(err)
				}
				if gone.count.sendErrs != nil {
					t.Errorf("errors of the detached socket: %v", gone.count.sendErrs)
				}
				for _, id := range answered {
					wantAnswers(t, cs[int(id)%100], []byte{id})
				}
				if late == 0 {
					// Those that were queued before, and all that came after.
					collect(clients-n+clients, rest...)
				}
			})
		}
	}
}

// waitAllQueued returns when n datagrams of one byte are in the queues of ss together.
func waitAllQueued(t *testing.T, n int, ss []*testSocket) {
	t.Helper()
	var total uint64
	for end := time.Now().Add(ioLimit); time.Now().Before(end); runtime.Gosched() {
		total = 0
		for _, s := range ss {
			_, b, _ := kernelQueue(s.udp)
			total += b
		}
		if total > 0 && total%uint64(n) == 0 && total/uint64(n) >= 256 {
			return
		}
	}
	t.Fatalf("%d bytes queued", total)
}
