package test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coredns/caddy"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// samples are one scrape's, the parts of a histogram for themselves.
type samples model.Vector

// gather scrapes without HTTP.
func gather(t *testing.T) samples {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	v, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Now()}, families...)
	if err != nil {
		t.Fatal(err)
	}
	return samples(v)
}

// of are the fastudp samples with this name of the server on addr, and with these labels, each as in reason=short.
func (s samples) of(name, addr string, labels ...string) (of samples) {
	for _, x := range s {
		ok := x.Metric["__name__"] == model.LabelValue("coredns_fastudp_"+name) && x.Metric["server"] == model.LabelValue("dns://"+addr)
		for _, l := range labels {
			k, v, _ := strings.Cut(l, "=")
			ok = ok && x.Metric[model.LabelName(k)] == model.LabelValue(v)
		}
		if ok {
			of = append(of, x)
		}
	}
	return of
}

func (s samples) sum(name, addr string, labels ...string) (sum float64) {
	for _, x := range s.of(name, addr, labels...) {
		sum += float64(x.Value)
	}
	return sum
}

// servers are those that have a fastudp series.
func (s samples) servers() []string {
	all := make(map[string]bool)
	for _, x := range s {
		if strings.HasPrefix(string(x.Metric["__name__"]), "coredns_fastudp_") {
			all[strings.TrimPrefix(string(x.Metric["server"]), "dns://")] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// TestMetricsScrape reads and lints what the prometheus plugin exports of a server that has worked.
func TestMetricsScrape(t *testing.T) {
	web := fmt.Sprint("127.0.0.1:", freePort(t))
	inst := start(t, fmt.Sprintf(".:0 {\n bind 127.0.0.1\n prometheus %s\n fastudp 2\n sleep\n}\n", web))
	addr := udpAddrs(inst)[0]
	ask(t, "udp", addr, "a.test.")

	scrape := func() *http.Response {
		t.Helper()
		resp, err := http.Get("http://" + web + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	problems, err := promlint.New(scrape().Body).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "coredns_fastudp_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(scrape().Body)
	if err != nil {
		t.Fatal(err)
	}
	v, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Now()}, slices.Collect(maps.Values(families))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"received_total", "read_messages_sum", "read_messages_count", "send_messages_sum", "info"} {
		if got := samples(v).sum(name, addr); got != 1 {
			t.Errorf("%s is %v after one query", name, got)
		}
	}
}

// TestMetricsCount compares the counters with the traffic, while somebody scrapes all the time.
func TestMetricsCount(t *testing.T) {
	addr := udpAddrs(start(t, ".:0 {\n bind 127.0.0.1\n fastudp 2\n sleep\n}\n"))[0]
	const flows, each = 8, 500
	done := make(chan bool)
	scraped := make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-done:
				scraped <- n
				return
			default:
				if _, err := prometheus.DefaultGatherer.Gather(); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	msgs := slices.Repeat([][]byte{query("a.test.", dns.TypeA)}, each)
	for range flows {
		if got := answered(pipeline(t, dial(t, addr), msgs, 100, patience)); got != each {
			t.Errorf("%d of %d queries are answered", got, each)
		}
	}
	close(done)
	if n := <-scraped; n == 0 {
		t.Error("nobody scraped meanwhile")
	}

	// The last answer arrives before it is counted and its handler has returned.
	eventually(t, "every response is counted", patience, func() bool {
		now := gather(t)
		return now.sum("responses_total", addr) == flows*each && now.sum("inflight_queries", addr) == 0
	})
	now := gather(t)
	for _, name := range []string{"received_total", "responses_total", "read_messages_sum", "send_messages_sum"} {
		if got := now.sum(name, addr); got != flows*each {
			t.Errorf("%s is %v after %d queries", name, got, flows*each)
		}
	}
	for _, name := range []string{"dropped_total", "unusual_total", "send_errors_total", "receive_errors_total", "kernel_dropped_total", "kernel_queue_bytes", "inflight_queries"} {
		if got := now.sum(name, addr); got != 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
	for _, h := range [][2]string{{"read_messages", "reads_total"}, {"send_messages", "sends_total"}} {
		sockets := now.of(h[1], addr)
		if len(sockets) != int(now.sum("sockets", addr)) {
			t.Errorf("%s has %d series", h[1], len(sockets))
		}
		for _, s := range sockets {
			socket := "socket=" + string(s.Metric["socket"])
			messages := now.sum(h[0]+"_sum", addr, socket)
			if got := now.sum(h[0]+"_count", addr, socket); got != float64(s.Value) || got == 0 && messages > 0 || got > messages {
				t.Errorf("%s counts %v calls of %v messages, %s is %v", h[0], got, messages, h[1], s.Value)
			}
			// What the buckets say of the messages: more than the lower bounds and at most the upper ones.
			var below, low, high float64
			for le := 1; le <= 1024; le *= 2 {
				upTo := now.sum(h[0]+"_bucket", addr, socket, fmt.Sprint("le=", le))
				low += (upTo - below) * float64(le/2+1)
				high += (upTo - below) * float64(le)
				if upTo < below {
					t.Errorf("%s has %v up to %d, fewer than below", h[0], upTo, le)
				}
				below = upTo
			}
			if below != float64(s.Value) || messages < low || messages > high {
				t.Errorf("%s: %v of %v calls are in buckets, for %v to %v messages of %v", h[0], below, s.Value, low, high, messages)
			}
		}
	}
}

// TestMetricsReasons sends what is dropped or is no ordinary query, one kind after the other.
func TestMetricsReasons(t *testing.T) {
	addr := udpAddrs(start(t, ".:0 {\n bind 127.0.0.1\n fastudp 1 {\n max_inflight 4\n }\n sleep\n}\n"))[0]
	plain := query("a.test.", dns.TypeA)
	edit := func(i int, b byte) []byte {
		m := slices.Clone(plain)
		m[i] = b
		return m
	}
	signed := new(dns.Msg).SetQuestion("a.test.", dns.TypeA)
	signed.Extra = append(signed.Extra, &dns.TSIG{Hdr: dns.RR_Header{Name: "key.", Rrtype: dns.TypeTSIG, Class: dns.ClassANY},
		Algorithm: dns.HmacSHA256, MACSize: 2, MAC: "abcd"})
	tsig, err := signed.Pack()
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, addr)
	received := 0.0
	send := func(m []byte) {
		if _, err := c.Write(m); err != nil {
			t.Fatal(err)
		}
		received++
	}
	for _, k := range []struct {
		name, reason string
		msg          []byte
	}{
		{"dropped_total", "short", plain[:11]},
		{"dropped_total", "response", edit(2, 0x80)},
		{"unusual_total", "opcode", edit(2, dns.OpcodeStatus<<3)},
		{"unusual_total", "counts", edit(5, 2)},
		{"unusual_total", "malformed", plain[:len(plain)-1]},
		{"unusual_total", "tsig", tsig},
		{"unusual_total", "long", append(slices.Clone(plain), make([]byte, 5000)...)},
	} {
		send(k.msg)
		eventually(t, k.reason+" is counted", patience, func() bool { return gather(t).sum(k.name, addr, "reason="+k.reason) == 1 })
	}
	h := holdName(t)
	for range 7 {
		send(query(h.name, dns.TypeA))
	}
	eventually(t, "three are dropped", patience, func() bool { return gather(t).sum("dropped_total", addr, "reason=inflight") == 3 })
	eventually(t, "four are in handlers", patience, func() bool {
		now := gather(t)
		return now.sum("inflight_queries", addr) == 4 && now.sum("inflight_peak_queries", addr) == 4
	})
	h.release()
	eventually(t, "none is in a handler", patience, func() bool { return gather(t).sum("inflight_queries", addr) == 0 })
	now := gather(t)
	for name, want := range map[string]float64{
		"dropped_total": 5, "unusual_total": 5, "received_total": received, "inflight_peak_queries": 4, "inflight_limit_queries": 4,
	} {
		if got := now.sum(name, addr); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestMetricsOptions: the options are those in force, once for each address, and the sockets are numbered through.
func TestMetricsOptions(t *testing.T) {
	some := fmt.Sprint("127.0.0.1:", freePort(t))
	corefile := ".:" + some[strings.Index(some, ":")+1:] + " {\n bind 127.0.0.1\n multisocket 2\n fastudp 5 {\n batch 32\n fairness_cap 100\n read_buffer 8KiB\n write_buffer 16KiB\n max_inflight 0\n steer random\n gc_growth 2MiB\n }\n sleep\n}\n"
	start(t, corefile)
	some2 := udpAddrs(start(t, ".:0 {\n bind 127.0.0.1\n fastudp 1\n sleep\n}\n"))[0]
	eventually(t, "all servers serve", patience, func() bool {
		return len(gather(t).of("received_total", some)) == 5 && len(gather(t).of("received_total", some2)) == 1
	})
	now := gather(t)
	var numbers []int
	for _, s := range now.of("received_total", some) {
		n, _ := strconv.Atoi(string(s.Metric["socket"]))
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	if !slices.Equal(numbers, []int{0, 1, 2, 3, 4}) {
		t.Errorf("the sockets are %v", numbers)
	}
	info := now.of("info", some)
	if len(info) != 1 || info[0].Value != 1 {
		t.Fatalf("the info is %v", info)
	}
	if v := info[0].Metric["version"]; v == "" || v == "unknown" {
		t.Errorf("the version is %q", v)
	}
	want := map[model.LabelName]string{"goversion": runtime.Version(), "sockets": "5", "fairness_cap": "100", "max_inflight": "0", "gc_growth": "2097152"}
	if os.Getenv("GOGC") != "" {
		want["gc_growth"] = "0"
	}
	if runtime.GOOS == "linux" {
		maps.Copy(want, map[model.LabelName]string{"batch": "32", "steer": "random", "read_buffer": "8192", "write_buffer": "16384"})
	}
	for label, v := range want {
		if got := info[0].Metric[label]; string(got) != v {
			t.Errorf("%s is %q, want %q", label, got, v)
		}
	}
	for name, want := range map[string]float64{"sockets": 5, "read_buffer_asked_bytes": 8192, "write_buffer_asked_bytes": 16384} {
		if got := now.sum(name, some); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, absent := range map[string]string{"inflight_limit_queries": some, "write_buffer_asked_bytes": some2} {
		if got := now.of(name, absent); len(got) != 0 {
			t.Errorf("%v is there without a limit", got)
		}
	}
	if got := now.sum("inflight_limit_queries", some2); got != 10000 {
		t.Errorf("the default of max_inflight is %v", got)
	}
}

// TestMetricsReload: what a reload removes has no series any more, what stays counts anew.
func TestMetricsReload(t *testing.T) {
	eventually(t, "no server of another test has series", patience, func() bool { return len(gather(t).servers()) == 0 })
	a, b := freePort(t), freePort(t)
	addrA, addrB := fmt.Sprint("127.0.0.1:", a), fmt.Sprint("127.0.0.1:", b)
	block := func(port int, fastudp string) string {
		return fmt.Sprintf(".:%d {\n bind 127.0.0.1\n %s\n sleep\n}\n", port, fastudp)
	}
	inst, err := caddy.Start(input(block(a, "fastudp 4") + block(b, "fastudp 2")))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { stop(inst) }()
	ask(t, "udp", addrA, "a.test.")
	ask(t, "udp", addrB, "a.test.")
	for _, k := range []struct {
		corefile string
		sockets  map[string]float64 // by address
	}{
		{block(a, "fastudp 4"), map[string]float64{addrA: 4}},
		{block(a, "fastudp 2"), map[string]float64{addrA: 2}},
		{block(a, "") + block(b, "fastudp 2"), map[string]float64{addrB: 2}},
		{block(a, "fastudp 4") + block(b, "fastudp 2"), map[string]float64{addrA: 4, addrB: 2}},
		{block(a, ""), nil},
	} {
		if inst, err = inst.Restart(input(k.corefile)); err != nil {
			t.Fatal(err)
		}
		ask(t, "udp", addrA, "a.test.") // by the new listener, or by an old one that goes
		want := slices.Sorted(maps.Keys(k.sockets))
		eventually(t, fmt.Sprintf("the series are those of %v", k.sockets), patience, func() bool {
			now := gather(t)
			ok := slices.Equal(now.servers(), want)
			for addr, n := range k.sockets {
				ok = ok && now.sum("sockets", addr) == n && len(now.of("received_total", addr)) == int(n) && len(now.of("info", addr)) == 1
			}
			return ok
		})
		for addr := range k.sockets {
			ask(t, "udp", addr, "a.test.")
			if got := gather(t).sum("received_total", addr); got < 1 || got > 2 {
				t.Errorf("%s has received %v since the reload, which asked twice at most", addr, got)
			}
		}
	}
}
