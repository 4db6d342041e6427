package faults

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/fastudp/fastudp"
	"github.com/fastudp/fastudp/internal/directive"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

func init() {
	directive.Insert("multisocket", "fastudp") // as cmd/coredns does
	directive.Insert("erratic", "answers")
	plugin.Register("answers", setupAnswers)
	caddy.Quiet, dnsserver.Quiet = true, true
}

// childMain serves in a process of its own; it is there where the faults are.
var childMain func() int

const childEnv = "FASTUDP_FAULTS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain())
	}
	log.SetOutput(io.Discard)
	flag.Parse()
	flag.Set("test.parallel", "8") // the tests wait more than they work
	os.Exit(m.Run())
}

// answers is a plugin that answers by the first label of the name: see ServeDNS.
type answers struct{}

func setupAnswers(c *caddy.Controller) error {
	dnsserver.GetConfig(c).AddPlugin(func(plugin.Handler) plugin.Handler { return answers{} })
	return nil
}

func (answers) Name() string { return "answers" }

func (answers) ServeDNS(_ context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	q := r.Question[0]
	m := new(dns.Msg).SetReply(r)
	label, _, _ := strings.Cut(q.Name, ".")
	switch label {
	case "panic":
		panic("as asked")
	case "hang":
		hangs.wait(q.Name)
	case "keep":
		defer kept.add(r) // CoreDNS's own writer has changed its OPT by then
	case "big":
		for i := range 40 {
			m.Answer = append(m.Answer, txt(q.Name, fmt.Sprintf("%02d %s", i, strings.Repeat("x", 200))))
		}
	case "silent":
		return dns.RcodeSuccess, nil
	}
	if m.Answer == nil {
		m.Answer = []dns.RR{txt(q.Name, "answer")}
	}
	return dns.RcodeSuccess, w.WriteMsg(m)
}

func txt(name, text string) dns.RR {
	return &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}, Txt: []string{text}}
}

// hangs are the handlers that wait until the test lets them go on, by query name.
var hangs hanging

type hanging struct {
	mu      sync.Mutex
	release map[string]chan bool
	entered map[string]int
}

// hold makes queries for name hang until release is called.
func (h *hanging) hold(name string) (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.release == nil {
		h.release, h.entered = make(map[string]chan bool), make(map[string]int)
	}
	ch := make(chan bool)
	h.release[name] = ch
	return sync.OnceFunc(func() { close(ch) })
}

func (h *hanging) wait(name string) {
	h.mu.Lock()
	ch := h.release[name]
	if ch != nil {
		h.entered[name]++
	}
	h.mu.Unlock()
	if ch != nil {
		<-ch
	}
}

func (h *hanging) count(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.entered[name]
}

// kept are the requests that a handler has kept, with what they said then.
var kept keeping

type keeping struct {
	mu   sync.Mutex
	msgs []*dns.Msg
	said []string
}

func (k *keeping) add(r *dns.Msg) {
	k.mu.Lock()
	k.msgs, k.said = append(k.msgs, r), append(k.said, r.String())
	k.mu.Unlock()
}

func input(corefile string) caddy.CaddyfileInput {
	return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"}
}

// start starts an instance in this process that is stopped at the end of the test.
func start(t *testing.T, corefile string) (*caddy.Instance, string) {
	t.Helper()
	inst, err := caddy.Start(input(corefile))
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { stop(inst) })
	return inst, addrsOf(inst)[0]
}

// stop stops inst as a signal does, unless it has been.
func stop(inst *caddy.Instance) {
	if slices.Contains(caddy.Instances(), inst) {
		inst.ShutdownCallbacks()
		inst.Stop()
	}
}

func addrsOf(inst *caddy.Instance) (all []string) {
	for _, s := range inst.Servers() {
		if a := s.LocalAddr(); a != nil {
			all = append(all, a.String())
		}
	}
	slices.Sort(all)
	return all
}

// patience is how long an answer that must come may take on a busy machine.
const patience = 10 * time.Second

func query(name string, id uint16) []byte {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeTXT)
	m.Id = id
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// roundTrip returns the answer to msg, nil if none comes within limit. It passes over late answers to other questions.
func roundTrip(c net.Conn, msg []byte, limit time.Duration) []byte {
	c.SetReadDeadline(time.Now().Add(limit))
	buf := make([]byte, 65535)
	for _, err := c.Write(msg); err == nil; {
		var n int
		if n, err = c.Read(buf); n >= 2 && buf[0] == msg[0] && buf[1] == msg[1] {
			return buf[:n]
		}
	}
	return nil
}

// many is how many queries are a lot; the race detector makes each of them slow.
func many() int {
	if raceDetector {
		return 20000
	}
	return 100000
}

// eventually waits for a state that comes by itself.
func eventually(t *testing.T, what string, state func() bool) {
	t.Helper()
	if !within(patience, state) {
		t.Fatalf("not within %v: %s", patience, what)
	}
}

func within(limit time.Duration, state func() bool) bool {
	for end := time.Now().Add(limit); !state(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// gather are the values of CoreDNS's metrics, summed over all servers and sockets: "name value of another label …".
func gather() (map[string]float64, error) {
	families, err := prometheus.DefaultGatherer.Gather()
	values := make(map[string]float64)
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "coredns_")
		for _, m := range f.GetMetric() {
			if !ours {
				continue
			}
			words := []string{name}
			for _, l := range m.GetLabel() {
				if l.GetName() != "server" && l.GetName() != "socket" {
					words = append(words, l.GetValue())
				}
			}
			values[strings.Join(words, " ")] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values, err
}

func metric(t *testing.T, name string) float64 {
	t.Helper()
	values, err := gather()
	if err != nil {
		t.Fatal(err)
	}
	return values[name]
}
