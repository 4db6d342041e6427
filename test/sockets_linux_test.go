package test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// socket is one UDP socket as the kernel lists it.
type socket struct {
	inode string
	inet6 bool
}

// kernelSockets are the UDP sockets that the kernel has on a port.
func kernelSockets(t *testing.T, port int) (all []socket) {
	t.Helper()
	for _, file := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		table, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				all = append(all, socket{inode: f[9], inet6: strings.HasSuffix(file, "6")})
			}
		}
	}
	return all
}

// descriptor finds this process's descriptor for a socket.
func descriptor(t *testing.T, s socket) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); to == "socket:["+s.inode+"]" {
			fd, _ := strconv.Atoi(e.Name())
			return fd
		}
	}
	t.Fatalf("no descriptor for socket %s", s.inode)
	return -1
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return a.Port
}

func TestSocketsInKernel(t *testing.T) {
	for _, c := range []struct {
		block string
		want  int // sockets for each address
	}{
		{"bind 127.0.0.1\n fastudp 1", 1},
		{"bind 127.0.0.1\n fastudp 7", 7},
		{"bind ::1\n fastudp 3", 3},
		{"fastudp 4", 4},
		{"bind 127.0.0.1\n fastudp", runtime.GOMAXPROCS(0)},
		{"bind 127.0.0.1\n fastudp auto", runtime.GOMAXPROCS(0)},
		{"bind 127.0.0.1\n multisocket 2\n fastudp 5", 5},
		{"bind 127.0.0.1 127.0.0.2 ::1\n fastudp 2", 6},
	} {
		inst := start(t, fmt.Sprintf(".:%d {\n %s\n sleep\n}\n", freePort(t), c.block))
		addr := udpAddrs(inst)[0]
		if got := len(kernelSockets(t, portOf(t, addr))); got != c.want {
			t.Errorf("%q: the kernel has %d sockets, expected %d", c.block, got, c.want)
		}
		stop(inst)
		if got := len(kernelSockets(t, portOf(t, addr))); got != 0 {
			t.Errorf("%q: the kernel has %d sockets after the stop", c.block, got)
		}
	}
}

// option reads a socket option of all sockets on a port, and wants it to be the same for all.
func option(t *testing.T, port, level, opt int) int {
	t.Helper()
	value := -1
	for _, s := range kernelSockets(t, port) {
		v, err := unix.GetsockoptInt(descriptor(t, s), level, opt)
		if err != nil {
			t.Fatal(err)
		}
		if value != -1 && v != value {
			t.Errorf("option %d/%d is %d on one socket and %d on another", level, opt, value, v)
		}
		value = v
	}
	return value
}

func TestSocketsBuffers(t *testing.T) {
	plain := start(t, ".:0 {\n bind 127.0.0.1\n sleep\n}\n")
	system := option(t, portOf(t, udpAddrs(plain)[0]), unix.SOL_SOCKET, unix.SO_SNDBUF)
	for _, c := range []struct {
		block       string
		read, write int // 0 is the system's default
	}{
		{"", 4 << 20, 0},
		{"{\n read_buffer 64KiB\n }", 64 << 10, 0},
		{"{\n read_buffer 131072\n write_buffer 32KiB\n }", 128 << 10, 32 << 10},
	} {
		inst := start(t, fmt.Sprintf(".:0 {\n bind 127.0.0.1\n fastudp 3 %s\n sleep\n}\n", c.block))
		port := portOf(t, udpAddrs(inst)[0])
		write := 2 * c.write // the kernel doubles both, socket(7)
		if write == 0 {
			write = system
		}
		read := option(t, port, unix.SOL_SOCKET, unix.SO_RCVBUF)
		if limit := 2 * rmemMax(t); read != 2*c.read && (read != limit || limit > 2*c.read) {
			t.Errorf("%q: SO_RCVBUF is %d, expected %d or the system's limit %d", c.block, read, 2*c.read, limit)
		}
		if got := option(t, port, unix.SOL_SOCKET, unix.SO_SNDBUF); got != write {
			t.Errorf("%q: SO_SNDBUF is %d, expected %d", c.block, got, write)
		}
	}
}

func rmemMax(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		t.Skipf("the system's limit is unknown: %v", err)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// TestSocketsBufferWarning asks for more than the system gives to a process without CAP_NET_ADMIN.
func TestSocketsBufferWarning(t *testing.T) {
	size := 2 * rmemMax(t)
	c := startChild(t, fmt.Sprintf(".:0 {\n bind 127.0.0.1 127.0.0.2\n fastudp 3 {\n read_buffer %d\n }\n sleep\n}\n", size), childDropCaps+"=1")
	for _, addr := range c.addrs {
		ask(t, "udp", addr, "a.test.")
	}
	c.end(t)
	for _, ip := range []string{"127.0.0.1", "127.0.0.2"} {
		warned := regexp.MustCompile(`(?m)^.*WARNING.*` + regexp.QuoteMeta(ip) + `.*read_buffer is ` + fmt.Sprint(size/2) + ` .*$`)
		if got := warned.FindAllString(c.stderr.String(), -1); len(got) != 1 {
			t.Errorf("%d warnings for the listener on %s, expected 1:\n%s", len(got), ip, &c.stderr)
		}
	}
}

// TestSocketsNoBufferWarning: what was granted is not worth a line.
func TestSocketsNoBufferWarning(t *testing.T) {
	c := startChild(t, ".:0 {\n bind 127.0.0.1\n fastudp 2 {\n read_buffer 32KiB\n write_buffer 32KiB\n }\n sleep\n}\n")
	c.end(t)
	if bytes.Contains(c.stderr.Bytes(), []byte("WARNING")) {
		t.Errorf("a warning:\n%s", &c.stderr)
	}
}

func TestSocketsPktinfo(t *testing.T) {
	for _, c := range []struct {
		bind string
		want int
	}{{"", 1}, {"bind 127.0.0.1", 0}, {"bind ::1", 0}, {"bind 0.0.0.0", 1}, {"bind ::", 1}, {"bind 127.255.255.255", 1}} {
		inst := start(t, fmt.Sprintf(".:0 {\n %s\n fastudp 2\n sleep\n}\n", c.bind))
		port := portOf(t, udpAddrs(inst)[0])
		level, opt := unix.IPPROTO_IP, unix.IP_PKTINFO
		if kernelSockets(t, port)[0].inet6 {
			level, opt = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
		}
		if got := option(t, port, level, opt); got != c.want {
			t.Errorf("%q: pktinfo is %d, expected %d", c.bind, got, c.want)
		}
	}
}

// TestSocketsBroadcast asks a broadcast address, which nothing can be sent from: no answer may come from another one.
func TestSocketsBroadcast(t *testing.T) {
	for _, bind := range []string{"bind 127.255.255.255", ""} {
		variants(t, fmt.Sprintf(".:0 {\n %s\n fastudp 1\n sleep\n}\n", bind), func(t *testing.T, corefile string) {
			inst := start(t, corefile)
			c, err := net.ListenPacket("udp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			to := &net.UDPAddr{IP: net.IPv4(127, 255, 255, 255), Port: portOf(t, udpAddrs(inst)[0])}
			if _, err := c.WriteTo(query("a.test.", dns.TypeA), to); err != nil {
				t.Fatal(err)
			}
			c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
			if n, from, err := c.ReadFrom(make([]byte, 512)); err == nil {
				t.Errorf("an answer of %d bytes from %v", n, from)
			}
		})
	}
}

// TestSocketsAnswerFromAskedAddress: a connected socket receives nothing from any other address.
func TestSocketsAnswerFromAskedAddress(t *testing.T) {
	notify := new(dns.Msg).SetNotify("example.")
	update := new(dns.Msg).SetUpdate("example.")
	pack := func(m *dns.Msg) []byte {
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	two := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
	two.Question = append(two.Question, two.Question[0])
	messages := map[string][]byte{
		"query": query("a.example.", dns.TypeA), "notify": pack(notify), "update": pack(update),
		"two questions": pack(two), "malformed": query("a.example.", dns.TypeA)[:15],
	}
	got := make(map[string][]byte)
	variants(t, ".:0 {\n fastudp 2\n sleep\n}\n", func(t *testing.T, corefile string) {
		inst := start(t, corefile)
		_, port, _ := net.SplitHostPort(udpAddrs(inst)[0])
		for _, host := range []string{"127.0.0.1", "127.0.0.2", "127.1.2.3", "::1"} {
			c := dial(t, net.JoinHostPort(host, port))
			for name, m := range messages {
				key := host + " " + name
				answer := roundTrip(t, c, m, patience)
				if answer == nil {
					t.Errorf("%s: no answer", key)
				}
				if first, ok := got[key]; ok && !bytes.Equal(first, answer) {
					t.Errorf("%s: fastudp answers %x, stock %x", key, answer, first)
				}
				got[key] = answer
			}
		}
	})
}

// share asks many questions over one socket and says how many each socket of the server received.
func share(t *testing.T, c net.Conn, addr string, n int) map[string]float64 {
	t.Helper()
	before := series(t, "received_total", addr)
	msgs := make([][]byte, n)
	for i := range msgs {
		msgs[i] = query("a.test.", dns.TypeA)
	}
	if got := answered(pipeline(t, c, msgs, 64, patience)); got != n {
		t.Fatalf("%d of %d answers", got, n)
	}
	after := series(t, "received_total", addr)
	for s := range after {
		if after[s] -= before[s]; after[s] == 0 {
			delete(after, s)
		}
	}
	return after
}

func TestSocketsSteering(t *testing.T) {
	corefile := func(steer string) string {
		return fmt.Sprintf(".:0 {\n bind 127.0.0.1\n fastudp 4 {\n %s\n }\n sleep\n}\n", steer)
	}
	t.Run("random", func(t *testing.T) {
		addr := udpAddrs(start(t, corefile("steer random")))[0]
		n := 100_000.0
		if raceDetector {
			n = 10_000 // slow
		}
		got := share(t, dial(t, addr), addr, int(n))
		if len(got) != 4 || total(got) != n {
			t.Fatalf("one client's queries went to %v", got)
		}
		for s, v := range got {
			if v < n/4*0.9 || v > n/4*1.1 { // five standard deviations or more
				t.Errorf("socket %s received %v of %v", s, v, n)
			}
		}
	})
	// What a reload adds or takes away is steered to, or no more.
	t.Run("random after reloads", func(t *testing.T) {
		port := freePort(t)
		corefile := func(n int) string {
			return fmt.Sprintf(".:%d {\n bind 127.0.0.1\n fastudp %d {\n steer random\n }\n sleep\n}\n", port, n)
		}
		inst := start(t, corefile(4))
		t.Cleanup(func() { stop(inst) })
		addr := udpAddrs(inst)[0]
		for _, n := range []int{2, 5, 3} {
			next, err := inst.Restart(input(corefile(n)))
			if err != nil {
				t.Fatal(err)
			}
			inst = next
			eventually(t, fmt.Sprint(n, " sockets"), patience, func() bool { return len(series(t, "received_total", addr)) == n })
			const queries = 10_000
			got := share(t, dial(t, addr), addr, queries)
			if len(got) != n || total(got) != queries {
				t.Fatalf("%d sockets: one client's queries went to %v", n, got)
			}
			for s, v := range got {
				if want := float64(queries / n); v < want*0.85 || v > want*1.15 { // six standard deviations or more
					t.Errorf("%d sockets: socket %s received %v of %v", n, s, v, queries)
				}
			}
		}
	})
	for _, way := range []string{"steer hash", ""} {
		t.Run("hash "+way, func(t *testing.T) {
			addr := udpAddrs(start(t, corefile(way)))[0]
			sockets := make(map[string]bool)
			for range 64 {
				got := share(t, dial(t, addr), addr, 4)
				if len(got) != 1 {
					t.Fatalf("one flow went to the sockets %v", got)
				}
				for s := range got {
					sockets[s] = true
				}
			}
			if len(sockets) != 4 {
				t.Errorf("64 flows reached only the sockets %v", sockets)
			}
		})
	}
	t.Run("cpu", func(t *testing.T) {
		addr := udpAddrs(start(t, corefile("steer cpu")))[0]
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var allowed unix.CPUSet
		if err := unix.SchedGetaffinity(0, &allowed); err != nil {
			t.Fatal(err)
		}
		defer unix.SchedSetaffinity(0, &allowed)
		socketOf := make(map[string]int) // the CPU whose packets it got
		cpus := 0
		for cpu := range 4 { // as many as sockets: the remainder is the CPU itself
			if !allowed.IsSet(cpu) {
				continue
			}
			cpus++
			var one unix.CPUSet
			one.Set(cpu)
			if err := unix.SchedSetaffinity(0, &one); err != nil { // loopback delivers on the CPU that sends
				t.Fatal(err)
			}
			for range 8 { // several flows, which the hash would spread
				for s := range share(t, dial(t, addr), addr, 16) {
					if other, ok := socketOf[s]; ok && other != cpu {
						t.Fatalf("socket %s got packets of the CPUs %d and %d", s, other, cpu)
					}
					if socketOf[s] = cpu; s != fmt.Sprint(cpu) {
						t.Errorf("packets of CPU %d went to socket %s", cpu, s)
					}
				}
			}
		}
		if len(socketOf) != cpus {
			t.Errorf("packets of %d CPUs went to the sockets %v", cpus, socketOf)
		}
	})
}
