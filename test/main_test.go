// Package test runs whole CoreDNS instances with fastudp and compares them with stock ones.
package test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/core/plugin" // every stock plugin
	_ "github.com/fastudp/fastudp"
	"github.com/fastudp/fastudp/internal/directive"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

func init() {
	directive.Insert("multisocket", "fastudp") // as cmd/coredns does
	directive.Insert("erratic", "sleep")
	caddy.Quiet, dnsserver.Quiet = true, true
}

func TestMain(m *testing.M) {
	if corefile := os.Getenv(childCorefile); corefile != "" {
		os.Exit(childMain(corefile))
	}
	if !slices.ContainsFunc(os.Args, func(a string) bool { return a == "-test.v=true" }) {
		log.SetOutput(io.Discard)
	}
	code := m.Run()
	for _, dir := range tempDirs {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// tempDirs go when all tests have ended.
var tempDirs []string

// input is a Corefile as caddy wants it.
func input(corefile string) caddy.CaddyfileInput {
	return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"}
}

// stock is the Corefile without fastudp.
func stock(corefile string) string {
	var kept []string
	block := false
	for line := range strings.Lines(corefile) {
		words := strings.Fields(line)
		switch {
		case block:
			block = len(words) == 0 || words[0] != "}"
		case len(words) > 0 && words[0] == "fastudp":
			block = words[len(words)-1] == "{"
		default:
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// variants runs f with the stock listener and with fastudp's.
func variants(t *testing.T, corefile string, f func(t *testing.T, corefile string)) {
	if stock(corefile) == corefile {
		t.Fatal("the Corefile has no fastudp: there is nothing to compare")
	}
	t.Run("stock", func(t *testing.T) { f(t, stock(corefile)) })
	t.Run("fastudp", func(t *testing.T) { f(t, corefile) })
}

// start starts an instance that is stopped at the end of the test.
func start(t *testing.T, corefile string) *caddy.Instance {
	t.Helper()
	inst, err := caddy.Start(input(corefile))
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { stop(inst) })
	return inst
}

// stop stops inst as a signal does, unless it has been.
func stop(inst *caddy.Instance) {
	if slices.Contains(caddy.Instances(), inst) {
		inst.ShutdownCallbacks()
		inst.Stop()
	}
}

// startErr starts an instance that must not start, and returns why.
func startErr(t *testing.T, corefile string) string {
	t.Helper()
	inst, err := caddy.Start(input(corefile))
	if err == nil {
		stop(inst)
		t.Fatal("started without an error")
	}
	return err.Error()
}

// udpAddrs are the UDP addresses of inst, sorted.
func udpAddrs(inst *caddy.Instance) []string {
	var all []string
	for _, s := range inst.Servers() {
		if a := s.LocalAddr(); a != nil {
			all = append(all, a.String())
		}
	}
	slices.Sort(all)
	return all
}

// freePort is a port free for UDP and TCP on all addresses. It is none that the system gives to clients,
// nor to the other test processes: with SO_REUSEPORT two servers would share one unnoticed.
func freePort(t *testing.T) int {
	t.Helper()
	for range 200 {
		port := 2000 + rand.IntN(8000)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		p, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		l.Close()
		if err == nil {
			p.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// patience is how long an answer that must come may take on a busy machine.
const patience = 5 * time.Second

// query is a question in wire format with an ID to be set by setID.
func query(name string, qtype uint16) []byte {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func setID(b []byte, id uint16) []byte {
	b = slices.Clone(b)
	b[0], b[1] = byte(id>>8), byte(id)
	return b
}

// ask asks addr for the A record of name over network (udp, tcp, tcp-tls).
func ask(t *testing.T, network, addr, name string) *dns.Msg {
	t.Helper()
	m, err := tryAsk(network, addr, name)
	if err != nil {
		t.Fatalf("ask %s %s for %s: %v", network, addr, name, err)
	}
	return m
}

func tryAsk(network, addr, name string) (*dns.Msg, error) {
	c := dns.Client{Net: network, Timeout: 3 * time.Second}
	m, _, err := c.Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA), addr)
	return m, err
}

// dial connects a UDP socket: it receives nothing but what comes from the very address it asks.
func dial(t *testing.T, addr string) *net.UDPConn {
	t.Helper()
	c, err := net.Dial("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UDPConn)
}

// roundTrip sends one datagram and returns the answer, nil if none comes within limit.
func roundTrip(t *testing.T, c net.Conn, msg []byte, limit time.Duration) []byte {
	t.Helper()
	if _, err := c.Write(msg); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 65535)
	c.SetReadDeadline(time.Now().Add(limit))
	for {
		n, err := c.Read(buf)
		if err != nil {
			return nil
		}
		if n >= 2 && buf[0] == msg[0] && buf[1] == msg[1] { // not a late answer to another question
			return slices.Clone(buf[:n])
		}
	}
}

// pipeline sends msgs with at most window of them unanswered and returns the answers in the same
// order, nil where none came within limit of the one before. It renumbers the messages.
func pipeline(t *testing.T, c net.Conn, msgs [][]byte, window int, limit time.Duration) [][]byte {
	t.Helper()
	answers := make([][]byte, len(msgs))
	buf := make([]byte, 65535)
	sent, got, base := 0, 0, 0
	for got < len(msgs) {
		for sent < len(msgs) && sent-got < window && sent-base < 1<<16 {
			if _, err := c.Write(setID(msgs[sent], uint16(sent))); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		c.SetReadDeadline(time.Now().Add(limit))
		n, err := c.Read(buf)
		if err != nil {
			return answers
		}
		if n < 2 {
			t.Fatalf("an answer of %d bytes", n)
		}
		i := base + int(uint16(int(buf[0])<<8|int(buf[1]))-uint16(base))
		if i >= sent {
			t.Fatalf("an answer with ID %d that no question has", i)
		}
		if answers[i] != nil {
			t.Fatalf("question %d is answered twice", i)
		}
		answers[i] = slices.Clone(buf[:n])
		for got++; base < sent && answers[base] != nil; {
			base++
		}
	}
	return answers
}

func answered(answers [][]byte) int {
	n := 0
	for _, a := range answers {
		if a != nil {
			n++
		}
	}
	return n
}

// eventually waits for a state that comes by itself.
func eventually(t *testing.T, what string, limit time.Duration, state func() bool) {
	t.Helper()
	if !within(limit, state) {
		t.Fatalf("not within %v: %s", limit, what)
	}
}

func within(limit time.Duration, state func() bool) bool {
	for end := time.Now().Add(limit); !state(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// series are the values of a fastudp metric by socket, for the server with this UDP address.
func series(t *testing.T, metric, addr string) map[string]float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	servers := []string{"dns://" + addr}
	if port, ok := strings.CutPrefix(addr, "[::]"); ok { // a server is named as in the Corefile
		servers = append(servers, "dns://"+port, "dns://0.0.0.0"+port)
	}
	values := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "coredns_fastudp_"+metric {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if slices.Contains(servers, labels["server"]) {
				values[labels["socket"]] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return values
}

func total(values map[string]float64) (sum float64) {
	for _, v := range values {
		sum += v
	}
	return sum
}

// median of ds, which it sorts.
func median(ds []time.Duration) time.Duration { return quantile(ds, 50) }

func quantile(ds []time.Duration, percent int) time.Duration {
	slices.Sort(ds)
	return ds[min(len(ds)*percent/100, len(ds)-1)]
}

// A child is this test binary serving a Corefile in a process of its own.
const (
	childCorefile = "FASTUDP_TEST_COREFILE"
	childDropCaps = "FASTUDP_TEST_DROP_CAPS"
)

type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
	addrs  []string // UDP, sorted
}

// dropCaps executes this program anew without CAP_NET_ADMIN.
var dropCaps = func() error { return errors.New("no capabilities on this system") }

func childMain(corefile string) int {
	if os.Getenv(childDropCaps) != "" {
		if err := dropCaps(); err != nil {
			fmt.Println("error", err)
			return 1
		}
	}
	inst, err := caddy.Start(input(corefile))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("serving", strings.Join(udpAddrs(inst), " "))
	io.Copy(io.Discard, os.Stdin)
	stop(inst)
	return 0
}

// startChild returns when the child serves. Its end is that of the test.
func startChild(t *testing.T, corefile string, env ...string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe)}
	c.cmd.Env = append(append(os.Environ(), childCorefile+"="+corefile), env...)
	c.cmd.Stderr = &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.end(t) })
	line, _ := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "serving" {
		t.Fatalf("child: %s", line)
	}
	c.addrs = words[1:]
	return c
}

// end stops the child; then stderr is complete.
func (c *child) end(t *testing.T) {
	if c.cmd.ProcessState != nil {
		return
	}
	c.stdin.Close()
	timer := time.AfterFunc(15*time.Second, func() { c.cmd.Process.Kill() })
	defer timer.Stop()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("child: %v\n%s", err, &c.stderr)
	}
}
