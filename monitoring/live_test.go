package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/util/teststorage"
	"golang.org/x/net/dns/dnsmessage"
)

// A CoreDNS with fastudp that drops queries and cannot send some responses.
const corefile = `.:%d {
    bind 127.0.0.1
    prometheus 127.0.0.1:%d
    fastudp 2 {
        read_buffer 64KiB
        write_buffer 64KiB
        max_inflight 2
    }
    erratic {
        drop 0
        truncate 0
        delay 2 50ms
    }
}
`

// scrapeInterval is what the scrapes pretend to be apart.
const scrapeInterval = 15 * time.Second

// live is what Prometheus has after some scrapes of a CoreDNS with fastudp.
type live struct {
	storage *teststorage.TestStorage
	now     time.Time           // of the last scrape
	labels  map[string][]string // by metric
}

func startLive(t *testing.T) *live {
	t.Helper()
	dnsPort, httpPort := freePort(t), freePort(t)
	startServer(t, fmt.Sprintf(corefile, dnsPort, httpPort))
	metrics := fmt.Sprintf("http://127.0.0.1:%d/metrics", httpPort)
	l := &live{storage: teststorage.New(t), now: time.Unix(0, 0), labels: make(map[string][]string)}
	last := scrape(t, metrics)
	for range 4 { // a series that begins with its first event has a rate only later
		last = moreTraffic(t, dnsPort, metrics, last)
		l.add(t, last)
	}
	return l
}

// moreTraffic sends until responses, drops and send errors are more than at the last scrape.
func moreTraffic(t *testing.T, port int, metrics string, last samples) samples {
	t.Helper()
	for range 50 {
		raw := sendTraffic(t, port)
		now := scrape(t, metrics)
		grown := func(name, label string) bool { return now.sum(name, label) > last.sum(name, label) }
		if grown("coredns_fastudp_responses_total", "") && grown("coredns_fastudp_dropped_total", `reason="inflight"`) &&
			(!raw || grown("coredns_fastudp_send_errors_total", `error="EINVAL"`)) {
			return now
		}
	}
	t.Fatal("no drops or send errors, whatever is sent")
	return nil
}

// unprovoked are metrics that may have no series in a test: the README tells their labels.
var unprovoked = map[string]string{
	"coredns_fastudp_receive_errors_total": "nothing makes reading fail",
	"coredns_fastudp_send_errors_total":    "takes a raw socket",
	"coredns_fastudp_kernel_dropped_total": "Linux",
	"coredns_fastudp_kernel_queue_bytes":   "Linux",
}

// add appends one scrape, as Prometheus does, and a made-up series for each metric that has none.
func (l *live) add(t *testing.T, s samples) {
	t.Helper()
	l.now = l.now.Add(scrapeInterval)
	app := l.storage.Appender(context.Background())
	put := func(ls labels.Labels, value float64) {
		b := labels.NewBuilder(ls)
		b.Set("job", "coredns").Set("instance", "127.0.0.1:9153")
		ls = b.Labels()
		if _, err := app.Append(0, ls, l.now.UnixMilli(), value); err != nil {
			t.Fatal(err)
		}
		var names []string
		ls.Range(func(l labels.Label) { names = append(names, l.Name) })
		l.labels[ls.Get("__name__")] = names
	}
	there := make(map[string]bool)
	for _, x := range s {
		there[x.labels.Get("__name__")] = true
		put(x.labels, x.value)
	}
	for name := range unprovoked {
		if there[name] {
			continue
		}
		made := map[string]string{"__name__": name}
		for _, label := range documented(t, name) {
			made[label] = "0"
		}
		put(labels.FromMap(made), float64(l.now.Unix()))
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
}

// documented are the labels of a metric in the README.
func documented(t *testing.T, metric string) []string {
	t.Helper()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?m)^\\* `" + metric + `\{([^}]*)\}`).FindSubmatch(readme)
	if m == nil {
		t.Fatalf("the README has no labels of %s", metric)
	}
	return strings.Split(string(m[1]), ", ")
}

type samples []sample

type sample struct {
	labels labels.Labels
	value  float64
}

// sum adds up the series of a metric that have a label written like this.
func (s samples) sum(name, with string) (total float64) {
	for _, x := range s {
		if x.labels.Get("__name__") == name && strings.Contains(x.labels.String(), with) {
			total += x.value
		}
	}
	return total
}

// scrape reads the metrics. The server may be about to start.
func scrape(t *testing.T, url string) samples {
	t.Helper()
	var text []byte
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if text, err = get(url); err == nil {
			return parseText(t, text)
		}
	}
	t.Fatal(err)
	return nil
}

func get(url string) ([]byte, error) {
	client := http.Client{Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func parseText(t *testing.T, text []byte) (s samples) {
	t.Helper()
	p := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		if entry == textparse.EntrySeries {
			var x sample
			p.Labels(&x.labels)
			_, _, x.value = p.Series()
			s = append(s, x)
		}
	}
}

// sendTraffic asks more than the server lets wait at once, and what it does not take for a query. It
// says whether it could send a query from port 0, whose response cannot be sent.
func sendTraffic(t *testing.T, port int) (raw bool) {
	t.Helper()
	c, err := net.Dial("udp4", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 50 {
		c.Write(message(t, 0))
	}
	time.Sleep(100 * time.Millisecond) // until no query is in a handler
	c.Write(message(t, 4))             // NOTIFY
	c.Write([]byte("short"))

	ip, err := net.DialIP("ip4:udp", nil, &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return false
	}
	defer ip.Close()
	query := message(t, 0)
	header := []byte{0, 0, byte(port >> 8), byte(port), 0, byte(8 + len(query)), 0, 0} // no checksum
	for range 2 {                                                                      // erratic may answer one of them late
		if _, err := ip.Write(append(header, query...)); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

func message(t *testing.T, opcode dnsmessage.OpCode) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(rand.Uint32()), OpCode: opcode},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("example.org."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startServer builds this repository's CoreDNS and runs it until the test ends.
func startServer(t *testing.T, corefile string) {
	t.Helper()
	dir := t.TempDir()
	exe, conf := filepath.Join(dir, "minidns"), filepath.Join(dir, "Corefile")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", exe, "./internal/minidns")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.WriteFile(conf, []byte(corefile), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	server := exec.Command(exe, "-conf", conf)
	server.Stdout, server.Stderr = &out, &out
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
		if t.Failed() {
			t.Log(out.String())
		}
	})
}

// freePort is a port free for UDP and TCP, and none that the system gives to clients.
func freePort(t *testing.T) int {
	t.Helper()
	for range 200 {
		port := 2000 + rand.IntN(8000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		p, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		l.Close()
		if err == nil {
			p.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}
