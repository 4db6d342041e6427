package test

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// grace is how long a server's Stop may wait for handlers, as with stock.
const grace = 5 * time.Second

func TestStopIdle(t *testing.T) {
	variants(t, ".:0 {\n bind 127.0.0.1 127.0.0.2\n fastudp 3\n sleep\n}\n", func(t *testing.T, corefile string) {
		inst := start(t, corefile)
		addr := udpAddrs(inst)[0]
		ask(t, "udp", addr, "a.test.")
		begin := time.Now()
		stop(inst)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("an idle server took %v to stop", took)
		}
	})
}

// TestStopHandlerNeverReturns: Stop gives up, and what the handler writes later finds no socket.
func TestStopHandlerNeverReturns(t *testing.T) {
	inst := start(t, ".:0 {\n bind 127.0.0.1\n fastudp 2\n sleep\n}\n")
	addr := udpAddrs(inst)[0]
	h := holdName(t)
	const n = 20
	for range n {
		c := dial(t, addr)
		c.Write(query(h.name, dns.TypeA))
	}
	eventually(t, "the queries are in handlers", patience, func() bool { return h.entered.Load() == n })
	begin := time.Now()
	inst.Stop()
	if took := time.Since(begin); took < grace-100*time.Millisecond || took > grace+2*time.Second {
		t.Errorf("Stop took %v with handlers that do not return, expected %v", took, grace)
	}
	h.release()
	for range n {
		if err := <-h.written; err == nil {
			t.Error("WriteMsg after Stop returned no error")
		}
	}
}

// flows are n clients of a server, to reach all its sockets.
func flows(t *testing.T, addr string, n int) []*net.UDPConn {
	all := make([]*net.UDPConn, n)
	for i := range all {
		all[i] = dial(t, addr)
	}
	return all
}

// countAnswers reads from all flows at once until limit passes without an answer.
func countAnswers(flows []*net.UDPConn, limit time.Duration) int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	all := 0
	for _, c := range flows {
		wg.Go(func() {
			buf := make([]byte, 2048)
			n := 0
			for {
				c.SetReadDeadline(time.Now().Add(limit))
				if _, err := c.Read(buf); err != nil {
					break
				}
				n++
			}
			mu.Lock()
			all += n
			mu.Unlock()
		})
	}
	wg.Wait()
	return all
}

func TestStopAnswersWhatIsInHandlers(t *testing.T) {
	variants(t, ".:0 {\n bind 127.0.0.1\n fastudp 2\n sleep\n}\n", func(t *testing.T, corefile string) {
		inst := start(t, corefile)
		h := holdName(t)
		clients := flows(t, udpAddrs(inst)[0], 20)
		for _, c := range clients {
			for range 10 {
				c.Write(query(h.name, dns.TypeA))
			}
		}
		eventually(t, "the queries are in handlers", patience, func() bool { return h.entered.Load() == 200 })
		stopped := make(chan struct{})
		go func() { stop(inst); close(stopped) }()
		select {
		case <-stopped:
			t.Fatal("Stop did not wait for the handlers")
		case <-time.After(100 * time.Millisecond):
		}
		h.release()
		<-stopped
		if got := countAnswers(clients, 200*time.Millisecond); got != 200 {
			t.Errorf("%d of 200 queries in handlers are answered", got)
		}
	})
}

// TestStopAnswersWhatTheKernelQueued: on one processor the server reads nothing between our sends and Stop.
func TestStopAnswersWhatTheKernelQueued(t *testing.T) {
	notify := new(dns.Msg).SetNotify("example.")
	unusual, err := notify.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, bind string
		hosts      []string
		msg        []byte
	}{
		{"IPv4", "bind 127.0.0.1", []string{"127.0.0.1"}, query("fast.test.", dns.TypeA)},
		{"IPv6", "bind ::1", []string{"::1"}, query("fast.test.", dns.TypeA)},
		{"wildcard", "", []string{"127.0.0.1", "127.0.0.9", "::1"}, query("fast.test.", dns.TypeA)},
		{"sleeping", "bind 127.0.0.1", []string{"127.0.0.1"}, query("sleep-100.test.", dns.TypeA)},
		{"unusual messages", "", []string{"127.0.0.1", "127.0.0.9", "::1"}, unusual},
	} {
		t.Run(c.name, func(t *testing.T) {
			inst := start(t, fmt.Sprintf(".:0 {\n %s\n fastudp 3\n sleep\n}\n", c.bind))
			_, port, _ := net.SplitHostPort(udpAddrs(inst)[0])
			var clients []*net.UDPConn
			for _, host := range c.hosts {
				clients = append(clients, flows(t, net.JoinHostPort(host, port), 10)...)
			}
			procs := runtime.GOMAXPROCS(1)
			defer runtime.GOMAXPROCS(procs)
			runtime.Gosched() // a fresh slice of time
			sent := 0
			for range 8 {
				for _, client := range clients {
					client.Write(c.msg)
					sent++
				}
			}
			stop(inst)
			if got := countAnswers(clients, 200*time.Millisecond); got != sent {
				t.Errorf("%d of %d queued queries are answered", got, sent)
			}
		})
	}
}

// TestStopFreesPort: a socket without SO_REUSEPORT can be bound only if no other is left.
func TestStopFreesPort(t *testing.T) {
	for _, bind := range []string{"bind 127.0.0.1", "bind ::1", ""} {
		inst := start(t, fmt.Sprintf(".:%d {\n %s\n fastudp 4\n sleep\n}\n", freePort(t), bind))
		addr := udpAddrs(inst)[0]
		ask(t, "udp", strings.Replace(addr, "[::]", "127.0.0.1", 1), "a.test.")
		stop(inst)
		p, err := net.ListenPacket("udp", addr)
		if err != nil {
			t.Fatalf("%q: %v", bind, err)
		}
		p.Close()
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatalf("%q: %v", bind, err)
		}
		l.Close()
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no list of open descriptors on this system: %v", err)
	}
	return len(fds)
}

// noLeak says what is left after f, which has run once before so that what is kept for good exists.
func noLeak(t *testing.T, f func()) {
	t.Helper()
	f()
	runtime.GC()
	goroutines, fds := runtime.NumGoroutine(), descriptors(t)
	for range 20 {
		f()
	}
	if !within(patience, func() bool {
		runtime.GC() // CoreDNS leaves some descriptors to the collector
		return runtime.NumGoroutine() <= goroutines && descriptors(t) <= fds
	}) {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines and %d descriptors, at first %d and %d\n%s",
			runtime.NumGoroutine(), descriptors(t), goroutines, fds, stacks[:runtime.Stack(stacks, true)])
	}
}

func TestStopLeavesNothing(t *testing.T) {
	variants(t, ".:0 {\n bind 127.0.0.1 ::1\n fastudp 3\n sleep\n}\n", func(t *testing.T, corefile string) {
		noLeak(t, func() {
			inst := start(t, corefile)
			for _, addr := range udpAddrs(inst) {
				c, err := net.Dial("udp", addr)
				if err != nil {
					t.Fatal(err)
				}
				for range 20 {
					c.Write(query("sleep-5.test.", dns.TypeA))
				}
				if roundTrip(t, c, setID(query("a.test.", dns.TypeA), 7), patience) == nil {
					t.Fatal("no answer")
				}
				c.Close()
			}
			stop(inst)
		})
	})
}
