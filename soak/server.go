package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fastudp/fastudp/internal/child"
	"github.com/miekg/dns"
)

// server is a CoreDNS under test.
type server struct {
	*child.Child
	corefile string // path
	ports    *strings.Replacer
	addr     netip.AddrPort // of DNS on 127.0.0.1
	health   string         // URLs
	metrics  string
}

// patience is how long what must happen may take on a busy machine.
const patience = 30 * time.Second

// httpClient opens a connection for each request: a reload closes those that are open.
var httpClient = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// start runs the server with a Corefile in which {DNS} is its port, {HEALTH} and {METRICS} are
// addresses. It must answer before start returns.
func (t *trial) start(corefile string, cpus ...int) error {
	s := &server{corefile: filepath.Join(t.dir, t.name+"-"+t.who())}
	var ports []string
	for range 3 {
		p, err := freePort()
		if err != nil {
			return err
		}
		ports = append(ports, strconv.Itoa(p))
	}
	s.addr = netip.MustParseAddrPort("127.0.0.1:" + ports[0])
	s.health, s.metrics = "http://127.0.0.1:"+ports[1]+"/health", "http://127.0.0.1:"+ports[2]+"/metrics"
	s.ports = strings.NewReplacer("{DNS}", ports[0], "{HEALTH}", "127.0.0.1:"+ports[1], "{METRICS}", "127.0.0.1:"+ports[2])
	if err := s.write(corefile); err != nil {
		return err
	}
	var err error
	s.Child, err = child.Start(child.Options{Name: t.who(), CPUs: cpus, Env: []string{"GOMEMLIMIT=off", "GOGC="}}, t.exe, "-conf", s.corefile)
	if err != nil {
		return err
	}
	t.server = s
	return t.eventually("the server answers", func() bool { return s.ask(s.addr, "udp", 200*time.Millisecond) == nil })
}

func (s *server) write(corefile string) error {
	return os.WriteFile(s.corefile, []byte(s.ports.Replace(corefile)), 0o600)
}

// eventually waits until ok, which must be soon.
func (t *trial) eventually(what string, ok func() bool) error {
	for end := time.Now().Add(patience); !ok(); t.sleep(10 * time.Millisecond) {
		select {
		case <-t.server.Done():
			return fmt.Errorf("not so because the server has ended: %s", what)
		default:
		}
		if time.Now().After(end) || t.ctx.Err() != nil {
			return fmt.Errorf("not within %v: %s", patience, what)
		}
	}
	return nil
}

// ask puts one question.
func (s *server) ask(to netip.AddrPort, network string, timeout time.Duration) error {
	c := dns.Client{Net: network, Timeout: timeout}
	_, _, err := c.Exchange(new(dns.Msg).SetQuestion("whoami.test.", dns.TypeA), to.String())
	return err
}

func get(url string) (string, error) {
	resp, err := httpClient.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(b), err
}

// scrape is what /metrics says.
type scrape string

func (s *server) scrape() (scrape, error) {
	text, err := get(s.metrics)
	return scrape(text), err
}

// sum adds up the series of a name that have all the labels, each as in reason="short".
func (s scrape) sum(name string, labels ...string) float64 {
	var sum float64
	for lines := bufio.NewScanner(strings.NewReader(string(s))); lines.Scan(); {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			ok = ok && strings.Contains(rest, l)
		}
		if v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64); ok && err == nil {
			sum += v
		}
	}
	return sum
}

func fastudp(name string) string { return "coredns_fastudp_" + name }

// noRoom is how many queries fastudp and the kernel have dropped because there was no room for them.
func (s scrape) noRoom() float64 {
	return s.sum(fastudp("dropped_total"), `reason="inflight"`) + s.sum(fastudp("kernel_dropped_total"))
}

// byReason is dropped_total in words.
func (s scrape) byReason() string {
	var b []string
	for _, r := range []string{"inflight", "short", "response", "proxy", "unusual"} {
		if n := s.sum(fastudp("dropped_total"), `reason="`+r+`"`); n > 0 {
			b = append(b, fmt.Sprintf("%s %.0f", r, n))
		}
	}
	if n := s.sum(fastudp("kernel_dropped_total")); n > 0 {
		b = append(b, fmt.Sprintf("kernel %.0f", n))
	}
	if len(b) == 0 {
		return "none"
	}
	return strings.Join(b, ", ")
}

const (
	reloaded = "Reloading complete"
	refused  = "[ERROR] SIGUSR1: starting"
)

// reload puts a Corefile in place and sends SIGUSR1. It returns when the log has one more line with
// want, and fails if that does not come.
func (t *trial) reload(corefile, want string) error {
	s := t.server
	if err := s.write(corefile); err != nil {
		return err
	}
	before := strings.Count(s.Log(), want)
	if err := s.Signal(reloadSignal); err != nil {
		return err
	}
	return t.eventually(fmt.Sprintf("one more %q in the log", want), func() bool { return strings.Count(s.Log(), want) > before })
}

// freePort is one that is free for UDP and TCP.
func freePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		l.Close()
		if err == nil {
			u.Close()
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port")
}
