package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

const dnsperfOutput = `DNS Performance Testing Tool
Version 2.10.0

[Status] Command line: dnsperf -s 127.0.0.1 -p 5300 -d q -l 1 -c 4 -q 1000 -t 0.5 -b 4096
[Status] Sending queries (to 127.0.0.1:5300)
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         123025
  Queries completed:    123019 (100.00%)
  Queries lost:         6 (0.00%)

  Response codes:       NOERROR 123019 (100.00%)
  Average packet size:  request 29, response 91
  Run time (s):         1.013309
  Queries per second:   121403.244223

  Average Latency (s):  0.006472 (min 0.000021, max 0.045883)
  Latency StdDev (s):   0.003488
`

func TestParseDnsperf(t *testing.T) {
	o, err := parseDnsperf([]byte(dnsperfOutput))
	if err != nil {
		t.Fatal(err)
	}
	l := o.Latency
	o.Latency = nil
	if want := (outcome{Sent: 123025, Answered: 123019, Lost: 6, Elapsed: 1013309 * time.Microsecond, RequestSize: 29, ResponseSize: 91}); o != want {
		t.Errorf("got  %+v\nwant %+v", o, want)
	}
	if want := (latency{Average: 6472 * time.Microsecond, Min: 21 * time.Microsecond, Max: 45883 * time.Microsecond, StdDev: 3488 * time.Microsecond}); l == nil || *l != want {
		t.Errorf("latency %+v, want %+v", l, want)
	}
	none := strings.NewReplacer("123019 (100.00%)", "0 (0.00%)").Replace(dnsperfOutput)
	if o, err := parseDnsperf([]byte(none)); err != nil || o.Answered != 0 || o.Latency != nil {
		t.Errorf("without an answer: %+v, %v", o, err)
	}
	if _, err := parseDnsperf([]byte("dnsperf: unable to open file")); err == nil {
		t.Error("an output without figures is accepted")
	}
}

const xdpgunOutput = `using interface v1, XDP threads 1, UDP, native mode
thread#00: sent 200010, received 194143
total queries:     200010 (100005 pps)
total replies:     194143 (97071 pps) (97%)
average DNS reply size: 91 B
average Ethernet reply rate: 103284076 bps (103.28 Mbps)
responded NOERROR:   194143
duration: 2 s
`

func TestParseXdpgun(t *testing.T) {
	o, err := parseXdpgun([]byte(xdpgunOutput))
	if want := (outcome{Sent: 200010, Answered: 194143, Lost: 5867, Elapsed: 2 * time.Second, ResponseSize: 91}); err != nil || o != want {
		t.Errorf("got  %+v, %v\nwant %+v", o, err, want)
	}
	for _, bad := range []string{"error: failed to initialize XDP socket#0", strings.Replace(xdpgunOutput, "duration: 2 s", "duration: 0 s", 1)} {
		if o, err := parseXdpgun([]byte(bad)); err == nil {
			t.Errorf("%q gave %+v", bad, o)
		}
	}
}

func TestXdpgunQuestions(t *testing.T) {
	w := work{questions: filepath.Join(t.TempDir(), "q")}
	if err := os.WriteFile(w.questions, []byte("a. NS\nb. DS\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if file, err := xdpgunQuestions(w); err != nil || file != w.questions {
		t.Errorf("without DO: %s, %v", file, err)
	}
	w.do = true
	file, err := xdpgunQuestions(w)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "a. NS D\nb. DS D\n" {
		t.Errorf("with DO: %q, %v", got, err)
	}
}

const metricsText = `# TYPE coredns_fastudp_received_total counter
coredns_fastudp_received_total{server="dns://127.0.0.1:5300",socket="0"} 100
coredns_fastudp_received_total{server="dns://127.0.0.1:5300",socket="1"} 28
coredns_fastudp_received_total{server="dns://127.0.0.1:53",socket="0"} 7
# TYPE coredns_fastudp_reads_total counter
coredns_fastudp_reads_total{server="dns://127.0.0.1:5300",socket="0"} 4
# TYPE coredns_fastudp_responses_total counter
coredns_fastudp_responses_total{server="dns://127.0.0.1:5300",socket="0"} 120
# TYPE coredns_fastudp_sends_total counter
coredns_fastudp_sends_total{server="dns://127.0.0.1:5300",socket="0"} 5
# TYPE coredns_fastudp_kernel_dropped_total counter
coredns_fastudp_kernel_dropped_total{server="dns://127.0.0.1:5300",socket="0"} 3
`

func TestParseCounters(t *testing.T) {
	c, err := parseCounters(strings.NewReader(metricsText), ":5300")
	if want := (counters{Received: 128, Reads: 4, Sent: 120, Sends: 5, KernelDropped: 3}); err != nil || c != want {
		t.Errorf("got %+v, %v, want %+v", c, err, want)
	}
	if _, err := parseCounters(strings.NewReader(metricsText), ":99"); err == nil {
		t.Error("a listener that is not there is accepted")
	}
	if _, err := parseCounters(strings.NewReader("go_goroutines 1\n"), ":5300"); err == nil {
		t.Error("a server without the metrics is accepted")
	}
}

// TestCommand: an error carries what the tool said.
func TestCommand(t *testing.T) {
	err := command(context.Background(), "sh", "-c", "echo why >&2; exit 1")
	if err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("got %v", err)
	}
}

func TestParsePerf(t *testing.T) {
	if n, err := parsePerf("1234,,raw_syscalls:sys_enter,911177,100.00,,\n"); err != nil || n != 1234 {
		t.Errorf("got %v, %v", n, err)
	}
	for _, bad := range []string{"", "Error:\nNo permission\n", "<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n"} {
		if n, err := parsePerf(bad); err == nil {
			t.Errorf("%q gave %v", bad, n)
		}
	}
}

func TestParseLink(t *testing.T) {
	n, err := parseLink([]byte(`[{"ifname":"v0","stats64":{"rx":{"bytes":1,"packets":2},"tx":{"bytes":9,"packets":40,"errors":0,"dropped":2}}}]`))
	if err != nil || n != 42 {
		t.Errorf("got %d, %v, want 42", n, err)
	}
	for _, bad := range []string{"", "[]", `[{"ifname":"v0"}]`} {
		if n, err := parseLink([]byte(bad)); err == nil {
			t.Errorf("%q gave %d", bad, n)
		}
	}
}

// TestProfile reads what the compiler optimises cmd/coredns by: it must know the listener and the plugins, and
// tell nothing of the machine where it was made.
func TestProfile(t *testing.T) {
	f, err := os.Open("../cmd/coredns/default.pgo")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	const anew = "write it anew with go run ./bench -pgo cmd/coredns/default.pgo"
	known := make(map[string]bool)
	for _, f := range p.Function {
		known[f.Name] = true
		if strings.Contains(f.Filename, "/") {
			t.Fatalf("%s is in %s: %s", f.Name, f.Filename, anew)
		}
	}
	for _, m := range p.Mapping {
		if strings.Contains(m.File, "/") {
			t.Errorf("the program is %s: %s", m.File, anew)
		}
	}
	const ours, theirs = "github.com/fastudp/fastudp/plugin/fastudp.", "github.com/coredns/coredns/plugin/"
	for _, f := range []string{ours + "(*engine).work", ours + "(*packer).message", theirs + "cache.(*Cache).ServeDNS", theirs + "file.File.ServeDNS", theirs + "whoami.Whoami.ServeDNS"} {
		if !known[f] {
			t.Errorf("no %s: %s", f, anew)
		}
	}
}
