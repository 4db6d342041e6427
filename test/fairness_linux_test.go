package test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
)

// flood sends to addr as fast as one thread can until stop.
func flood(t *testing.T, addr string) (stop func()) {
	t.Helper()
	c := dial(t, addr)
	p := ipv4.NewPacketConn(c)
	batch := make([]ipv4.Message, 128)
	for i := range batch {
		batch[i].Buffers = [][]byte{setID(query("spin-5.test.", dns.TypeA), uint16(i))}
	}
	var end atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for deadline := time.Now().Add(20 * time.Second); !end.Load() && time.Now().Before(deadline); {
			if _, err := p.WriteBatch(batch, 0); err != nil {
				time.Sleep(100 * time.Microsecond) // the send buffer is full, or the server has ended
			}
		}
	}()
	return func() { end.Store(true); <-done }
}

// queued is the length in bytes of the receive queue of the UDP socket on 127.0.0.1 and port.
func queued(t *testing.T, port int) int64 {
	t.Helper()
	table, err := os.ReadFile("/proc/net/udp")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) > 4 && f[1] == fmt.Sprintf("0100007F:%04X", port) {
			_, rx, _ := strings.Cut(f[4], ":")
			n, _ := strconv.ParseInt(rx, 16, 64)
			return n
		}
	}
	t.Fatalf("no socket on port %d", port)
	return 0
}

// TestFairness floods one socket of a server that has one processor and asks others meanwhile.
func TestFairness(t *testing.T) {
	medians := make(map[string][]time.Duration) // by what is asked, for each cap
	kinds := []string{"another address", "another family", "TCP"}
	for _, limit := range []int{256, 65536} {
		probes := 60
		if limit > 256 {
			probes = 15 // they take long
		}
		port := freePort(t)
		startChild(t, fmt.Sprintf(".:%d {\n bind 127.0.0.1 127.0.0.2 ::1\n fastudp 1 {\n fairness_cap %d\n read_buffer 32MiB\n }\n sleep\n}\n", port, limit), "GOMAXPROCS=1")
		conns := make(map[string]net.Conn)
		conns["another address"] = dial(t, fmt.Sprint("127.0.0.2:", port))
		conns["another family"] = dial(t, fmt.Sprintf("[::1]:%d", port))
		tcp, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		conns["TCP"] = tcp

		stop := flood(t, fmt.Sprint("127.0.0.1:", port))
		eventually(t, "the flood fills the queue", patience, func() bool { return queued(t, port) > 200<<10 })
		took := make(map[string][]time.Duration)
		empty := 0
		for i := range probes {
			for _, kind := range kinds {
				begin := time.Now()
				probe(t, kind, conns[kind], uint16(i))
				took[kind] = append(took[kind], time.Since(begin))
			}
			if queued(t, port) == 0 {
				empty++
			}
		}
		stop()
		if empty > probes/5 {
			t.Skipf("the queue was empty at %d of %d looks: this machine cannot keep up the flood", empty, probes)
		}
		for _, kind := range kinds {
			medians[kind] = append(medians[kind], median(took[kind]))
			t.Logf("fairness_cap %d, %s: median %v, 95th percentile %v", limit, kind, median(took[kind]), quantile(took[kind], 95))
		}
	}
	for _, kind := range kinds {
		fair, unfair := medians[kind][0], medians[kind][1]
		if fair > 20*time.Millisecond || 3*fair > unfair {
			t.Errorf("%s: median %v with fairness_cap 256, %v with 65536", kind, fair, unfair)
		}
	}
}

func probe(t *testing.T, kind string, c net.Conn, id uint16) {
	t.Helper()
	msg := setID(query("probe.test.", dns.TypeA), id)
	if kind != "TCP" {
		if roundTrip(t, c, msg, patience) == nil {
			t.Fatalf("%s: no answer", kind)
		}
		return
	}
	d := dns.Conn{Conn: c}
	d.SetDeadline(time.Now().Add(patience))
	if _, err := d.Write(msg); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	if _, err := d.ReadMsg(); err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
}
