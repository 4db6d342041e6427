package fastudp

import (
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// steerLabel is what the info metric says of the listener named server.
func steerLabel(t *testing.T, server string) (steer string) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "coredns_fastudp_info" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["server"] == server {
				return labels["steer"]
			}
		}
	}
	t.Fatalf("no info of %s", server)
	return ""
}

// TestSteerInForce: metrics and log tell how the kernel picks the socket, not how it should.
func TestSteerInForce(t *testing.T) {
	out := watchLog(t)
	corefile := ".:0 {\nbind 127.0.0.1\nportable 4 random\nwhoami\n}"
	at := startCorefile(t, corefile).Servers()[0].LocalAddr().String()
	serving(t, at)
	waitLine(t, out, "dns://"+at+": 4 sockets, ")
	if got := steerLabel(t, "dns://"+at); got != "random" || !strings.Contains(out.String(), ", steer random, ") {
		t.Errorf("alone it is %s, in the log\n%s", got, out)
	}
	end := startForeign(t, at)
	becomes(t, "beside another process the hash picks", func() bool { return steerLabel(t, "dns://"+at) == "hash" })
	// One that starts now says so at once.
	startCorefile(t, strings.Replace(corefile, ":0", at[strings.LastIndex(at, ":"):], 1))
	waitLine(t, out, ", steer hash instead of random (another process has sockets on the address), ")
	end()
	becomes(t, "alone again steer is in force", func() bool { return steerLabel(t, "dns://"+at) == "random" })
}

// TestBuffersInWords: the log tells what was asked, what was granted and what limits it, and the remedy
// for a full receive queue is one that helps.
func TestBuffersInWords(t *testing.T) {
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := (buffers{read: 8192, write: 16384}).set(c); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		read, write int // asked
		want, room  string
	}{
		{8192, 16384, "read buffer 8192 bytes as asked, write buffer 16384 bytes as asked", "read_buffer (8192 bytes now)"},
		{8192, 0, "write buffer 16384 bytes (the system's default)", "read_buffer (8192 bytes now)"},
		{9000, 20000, "read buffer 8192 bytes of 9000 asked (sysctl net.core.rmem_max), write buffer 16384 bytes of 20000 asked (sysctl net.core.wmem_max)",
			"the system's limit for read_buffer (sysctl net.core.rmem_max, which grants 8192 bytes of 9000)"},
	} {
		l := &listener{opts: Options{Batch: 64, FairnessCap: 256, ReadBuffer: k.read, WriteBuffer: k.write, Steer: SteerHash}}
		l.engines = []*engine{{io: &singleIO{udp: c}}}
		if got := l.summary(); !strings.Contains(got, k.want) || !strings.HasPrefix(got, "1 socket, batch 64, fairness cap 256, ") {
			t.Errorf("it says %q, want %q", got, k.want)
		}
		if got := l.room(); got != k.room {
			t.Errorf("what helps is %q, want %q", got, k.room)
		}
	}
}

// TestMetricsNewest: while two listeners serve an address the newer one has the series.
func TestMetricsNewest(t *testing.T) {
	corefile := ".:0 {\nbind 127.0.0.1\nportable 2\nwhoami\n}"
	at := startCorefile(t, corefile).Servers()[0].LocalAddr().String()
	serving(t, at).engines[0].count.pauses.Add(7)
	pauses := func() (sum float64) {
		families, err := prometheus.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "coredns_fastudp_pauses_total" && m.GetLabel()[0].GetValue() == "dns://"+at {
					sum += m.GetCounter().GetValue()
				}
			}
		}
		return sum
	}
	if got := pauses(); got != 7 {
		t.Errorf("the older one alone has counted %v", got)
	}
	newer := startCorefile(t, strings.Replace(corefile, ":0", at[strings.LastIndex(at, ":"):], 1))
	becomes(t, "the newer one has the series", func() bool { return pauses() == 0 })
	newer.Stop()
	becomes(t, "the older one has them again", func() bool { return pauses() == 7 })
}
