package test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// binary builds cmd/coredns once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fastudp-test")
	if err != nil {
		return "", err
	}
	tempDirs = append(tempDirs, dir)
	exe := filepath.Join(dir, "coredns")
	out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", exe, "github.com/fastudp/fastudp/cmd/coredns").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return exe, nil
})

// program is a running cmd/coredns.
type program struct {
	cmd      *exec.Cmd
	dir      string
	corefile string // path
	exited   chan error
}

// run starts cmd/coredns, which must answer UDP queries at addr.
func run(t *testing.T, corefile, addr string) *program {
	t.Helper()
	exe, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{dir: t.TempDir(), exited: make(chan error, 1)}
	p.corefile = filepath.Join(p.dir, "Corefile")
	p.write(t, corefile)
	p.cmd = exec.Command(exe, "-conf", p.corefile, "-pidfile", filepath.Join(p.dir, "pid"))
	out, err := os.Create(filepath.Join(p.dir, "log")) // no pipe: the process of an upgrade would keep it open
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.exited <- p.cmd.Wait() }()
	t.Cleanup(func() {
		if pid := p.pid(); pid != 0 && pid != p.cmd.Process.Pid { // what an upgrade has left
			syscall.Kill(pid, syscall.SIGKILL)
		}
		p.cmd.Process.Kill()
	})
	eventually(t, "the program answers", 2*patience, func() bool {
		c, err := net.Dial("udp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return roundTrip(t, ignoreRefused{c}, query("ready.test.", dns.TypeA), 100*time.Millisecond) != nil
	})
	return p
}

func (p *program) write(t *testing.T, corefile string) {
	t.Helper()
	if err := os.WriteFile(p.corefile, []byte(corefile), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *program) log() string {
	b, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(b)
}

// pid is that of the process that serves now: an upgrade changes it.
func (p *program) pid() int {
	b, _ := os.ReadFile(filepath.Join(p.dir, "pid"))
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// ignoreRefused is a connection on which it is no error that nobody listens yet.
type ignoreRefused struct{ net.Conn }

func (c ignoreRefused) Write(b []byte) (int, error) { c.Conn.Write(b); return len(b), nil }

// TestBinarySIGTERM: a program that is told to end answers what it has received.
func TestBinarySIGTERM(t *testing.T) {
	addr := fmt.Sprint("127.0.0.1:", freePort(t))
	_, port, _ := net.SplitHostPort(addr)
	const delay = 700 * time.Millisecond
	p := run(t, fmt.Sprintf("ready.test.:%[1]s {\n bind 127.0.0.1\n whoami\n}\nslow.test.:%[1]s {\n bind 127.0.0.1\n fastudp 2\n erratic {\n drop 0\n truncate 0\n delay 1 %[2]v\n }\n}\n", port, delay), addr)
	clients := flows(t, addr, 16)
	sent := 0
	for range 10 {
		for _, c := range clients {
			c.Write(setID(query("a.slow.test.", dns.TypeA), uint16(sent)))
			sent++
		}
	}
	time.Sleep(delay / 5) // they are in handlers, or in the kernel's queue
	begin := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := countAnswers(clients, delay+time.Second); got != sent {
		t.Errorf("%d of %d queries are answered", got, sent)
	}
	select {
	case err := <-p.exited:
		if err != nil {
			t.Errorf("the program ended with %v\n%s", err, p.log())
		}
	case <-time.After(grace + time.Second - time.Since(begin)):
		t.Errorf("the program has not ended after %v", time.Since(begin))
	}
}

// TestBinarySIGUSR1 reloads as an operator does, with another number of sockets and without the directive.
func TestBinarySIGUSR1(t *testing.T) {
	addr := fmt.Sprint("127.0.0.1:", freePort(t))
	_, port, _ := net.SplitHostPort(addr)
	with := func(line string) string {
		return fmt.Sprintf(".:%s {\n bind 127.0.0.1\n %s\n whoami\n}\n", port, line)
	}
	p := run(t, with("fastudp 2"), addr)
	s := startSteady(t, addr)
	s.more(t, 50)
	for i, line := range []string{"fastudp 2", "fastudp 4", "", "fastudp", "fastudp none", "fastudp 1"} {
		p.write(t, with(line))
		if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the program has reloaded or failed to", patience, func() bool {
			return strings.Count(p.log(), "Reloading complete")+strings.Count(p.log(), "SIGUSR1: starting") == i+1
		})
		s.more(t, 50)
	}
	if sent, lost, twice := s.finish(); lost != 0 || twice != 0 {
		t.Errorf("of %d queries %d got no answer and %d more than one\n%s", sent, lost, twice, p.log())
	}
	if n := strings.Count(p.log(), "SIGUSR1: starting"); n != 1 {
		t.Errorf("%d reloads failed, expected the one with a mistake\n%s", n, p.log())
	}
}

// TestBinarySIGUSR2 has a new process take over from the old one.
func TestBinarySIGUSR2(t *testing.T) {
	addr := fmt.Sprint("127.0.0.1:", freePort(t))
	_, port, _ := net.SplitHostPort(addr)
	p := run(t, fmt.Sprintf(".:%s {\n bind 127.0.0.1\n fastudp 3\n whoami\n}\n", port), addr)
	s := startSteady(t, addr)
	s.more(t, 50)
	if err := p.cmd.Process.Signal(syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.exited:
		if err != nil {
			t.Errorf("the old process ended with %v\n%s", err, p.log())
		}
	case <-time.After(2 * patience):
		t.Fatalf("the old process has not ended\n%s", p.log())
	}
	eventually(t, "the new process has written its number", patience, func() bool {
		return p.pid() != 0 && p.pid() != p.cmd.Process.Pid
	})
	s.more(t, 100)
	if sent, lost, twice := s.finish(); lost != 0 || twice != 0 {
		t.Errorf("of %d queries %d got no answer and %d more than one\n%s", sent, lost, twice, p.log())
	}
}
