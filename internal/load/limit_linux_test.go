package load

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fastudp/fastudp/internal/child"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// echoEnv makes the test program an echo server in a process of its own.
const echoEnv = "FASTUDP_LOAD_ECHO"

func TestMain(m *testing.M) {
	if os.Getenv(echoEnv) != "" {
		echoAll()
	}
	os.Exit(m.Run())
}

// echoAll answers every message with itself, marked as a response, as fast as one thread can.
func echoAll() {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		os.Exit(1)
	}
	setReceiveBuffer(c)
	os.Stdout.WriteString(c.LocalAddr().String() + "\n")
	p := ipv4.NewPacketConn(c)
	ms := make([]ipv4.Message, 256)
	for i := range ms {
		ms[i].Buffers = [][]byte{make([]byte, 512)}
	}
	for {
		for i := range ms {
			ms[i].Buffers[0] = ms[i].Buffers[0][:512]
		}
		n, err := p.ReadBatch(ms, 0)
		if err != nil {
			os.Exit(1)
		}
		for i := range n {
			ms[i].Buffers[0] = ms[i].Buffers[0][:ms[i].N]
			ms[i].Buffers[0][2] |= 0x80
		}
		for k := 0; k < n; {
			m, err := p.WriteBatch(ms[k:n], 0)
			if err != nil {
				m = 1
			}
			k += m
		}
	}
}

// BenchmarkLimit is what the generator can do on one CPU with an echo server on another.
//
//	go test -run '^$' -bench Limit -benchtime 2000000x ./internal/load
func BenchmarkLimit(b *testing.B) {
	if runtime.NumCPU() < 2 {
		b.Skip("needs two CPUs")
	}
	c, err := child.Start(child.Options{CPUs: []int{0}, Env: []string{echoEnv + "=1", "GOMAXPROCS=1"}}, os.Args[0])
	if err != nil {
		b.Fatal(err)
	}
	defer c.Signal(os.Kill)
	for !strings.Contains(c.Log(), "\n") {
		time.Sleep(time.Millisecond)
	}
	target := netip.MustParseAddrPort(strings.TrimSpace(c.Log()))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	pinAll(b, 1)
	q := [][]byte{append(make([]byte, headerSize), "\x06whoami\x04test\x00\x00\x01\x00\x01"...)}
	for name, cfg := range map[string]Config{
		"closed":      {Sockets: 4, Outstanding: 200},
		"open200k":    {Sockets: 16, Rate: 200e3},
		"open300k":    {Sockets: 16, Rate: 300e3},
		"openMaximum": {Sockets: 16, Rate: 500e3},
	} {
		b.Run(name, func(b *testing.B) {
			cfg.Target, cfg.Questions, cfg.Count = target, q, uint64(b.N)
			r, err := Run(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(r.Sent)/r.Elapsed.Seconds(), "sent/s")
			b.ReportMetric(float64(r.Answered)/r.Elapsed.Seconds(), "answered/s")
			b.ReportMetric(float64(r.Late)/float64(r.Sent), "late/sent")
			b.ReportMetric(float64(r.Latency.ValueAtQuantile(50))/1000, "p50-us")
		})
	}
}

// pinAll has all our threads, also those to come, run on one CPU.
func pinAll(b *testing.B, cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		b.Fatal(err)
	}
	for _, t := range tasks {
		tid, _ := strconv.Atoi(t.Name())
		if err := unix.SchedSetaffinity(tid, &set); err != nil {
			b.Skipf("cannot be bound to a CPU: %v", err)
		}
	}
}
