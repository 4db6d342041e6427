package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"golang.org/x/sys/unix"
)

func init() { childMain = obeyAll }

// order is what the test tells a child to do.
type order struct {
	Do       string
	Corefile string
	Refuse   []refusal
}

// report is what the child says then.
type report struct {
	Err        string
	Addrs      []string
	FD         int           // by which to decide calls
	CPU        time.Duration // user and system, since it began
	Heap       uint64
	Goroutines int
	Metrics    map[string]float64
}

// obeyAll is the child's main: it has a network namespace of its own, in which only loopback is up.
func obeyAll() int {
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var inst *caddy.Instance
	for {
		var o order
		if in.Decode(&o) != nil {
			return 0
		}
		var r report
		if err := obey(&inst, o, &r); err != nil {
			r.Err = err.Error()
		}
		if out.Encode(r) != nil {
			return 1
		}
	}
}

func obey(inst **caddy.Instance, o order, r *report) (err error) {
	switch o.Do {
	case "begin":
		return loopbackUp()
	case "become nobody":
		return errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534))
	case "start":
		*inst, err = caddy.Start(input(o.Corefile))
	case "reload":
		*inst, err = (*inst).Restart(input(o.Corefile))
	case "stop":
		stop(*inst)
		return nil
	case "refuse":
		r.FD, err = refuse(o.Refuse)
		return err
	case "look":
		runtime.GC()
		runtime.GC() // the second one empties the pools and closes what CoreDNS leaves to the collector
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		var use unix.Rusage
		unix.Getrusage(unix.RUSAGE_SELF, &use)
		r.CPU = time.Duration(use.Utime.Nano() + use.Stime.Nano())
		r.Heap, r.Goroutines = mem.HeapAlloc, runtime.NumGoroutine()
		r.Metrics, err = gather()
		return err
	default:
		return fmt.Errorf("unknown order %q", o.Do)
	}
	if err == nil {
		r.Addrs = addrsOf(*inst)
	}
	return err
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// child is this test binary obeying orders.
type child struct {
	cmd     *exec.Cmd
	in      *json.Encoder
	reports chan report
	stderr  syncBuffer
}

// syncBuffer may be read while the child writes.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newChild begins a child that ends with the test.
func newChild(t *testing.T) *child {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace of its own")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe), reports: make(chan report)}
	c.cmd.Env = append(os.Environ(), childEnv+"=1", "GORACE=atexit_sleep_ms=0")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	c.cmd.Stderr = &c.stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in = json.NewEncoder(stdin)
	if err := c.cmd.Start(); errors.Is(err, unix.EPERM) {
		t.Skipf("no network namespaces here: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	read := make(chan bool)
	go func() {
		defer close(read)
		defer close(c.reports)
		for out := json.NewDecoder(stdout); ; {
			var r report
			if out.Decode(&r) != nil {
				return
			}
			c.reports <- r
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		kill := time.AfterFunc(patience, func() { c.cmd.Process.Signal(syscall.SIGQUIT) })
		defer kill.Stop()
		<-read
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("child: %v\n%s", err, &c.stderr)
		}
		if strings.Contains(c.stderr.String(), "[PANIC]") {
			t.Errorf("the child has panicked\n%s", &c.stderr)
		}
	})
	c.must(t, order{Do: "begin"})
	return c
}

// do has an order obeyed, and is the error that comes of it.
func (c *child) do(t *testing.T, o order) (report, string) {
	t.Helper()
	if err := c.in.Encode(o); err != nil {
		t.Fatalf("%s: the child has ended: %v\n%s", o.Do, err, &c.stderr)
	}
	select {
	case r, ok := <-c.reports:
		if !ok {
			t.Fatalf("%s: the child has ended\n%s", o.Do, &c.stderr)
		}
		return r, r.Err
	case <-time.After(2 * patience):
		c.cmd.Process.Signal(syscall.SIGQUIT) // for the stacks
		<-c.reports
		t.Fatalf("%s hangs\n%s", o.Do, &c.stderr)
		panic("unreachable")
	}
}

func (c *child) must(t *testing.T, o order) report {
	t.Helper()
	r, err := c.do(t, o)
	if err != "" {
		t.Fatalf("%s: %s\n%s", o.Do, err, &c.stderr)
	}
	return r
}

func (c *child) start(t *testing.T, corefile string) []string {
	t.Helper()
	return c.must(t, order{Do: "start", Corefile: corefile}).Addrs
}

func (c *child) look(t *testing.T) report {
	t.Helper()
	return c.must(t, order{Do: "look"})
}

func (c *child) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", c.cmd.Process.Pid, name) }

// logged are the child's log lines that contain text.
func (c *child) logged(text string) (lines []string) {
	for line := range strings.Lines(c.stderr.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// warned are the warnings and errors of fastudp, which the log has soon after they arise.
func (c *child) warned() []string {
	time.Sleep(50 * time.Millisecond)
	return append(c.logged("[WARNING] plugin/fastudp"), c.logged("[ERROR] plugin/fastudp")...)
}

// descriptors are the names of what the child has open.
func (c *child) descriptors(t *testing.T) (all []string) {
	t.Helper()
	fds, err := filepath.Glob(c.proc("fd/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil {
			all = append(all, to)
		}
	}
	return all
}

// sockets is how many UDP sockets the child's namespace has on port.
func (c *child) sockets(t *testing.T, port int) (n int) {
	t.Helper()
	for _, file := range []string{"net/udp", "net/udp6"} {
		table, err := os.ReadFile(c.proc(file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(table)) {
			if f := strings.Fields(line); len(f) > 1 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				n++
			}
		}
	}
	return n
}

// inside runs f on a thread that is in the child's network namespace. What f opens stays there.
func (c *child) inside(t *testing.T, f func()) {
	t.Helper()
	ns, err := os.Open(c.proc("ns/net"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("setns: %v", err)
	}
}

// dial connects a client in the child's namespace.
func (c *child) dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	return c.dialFrom(t, "", addr)
}

func (c *child) dialFrom(t *testing.T, from, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
	return c.dialBy(t, d, addr, 1)[0]
}

func (c *child) dialBy(t *testing.T, d net.Dialer, addr string, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	var err error
	c.inside(t, func() {
		for i := range conns {
			if err == nil {
				conns[i], err = d.Dial("udp", addr)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, conn := range conns {
			conn.Close()
		}
	})
	return conns
}

// clients are so many flows that hardly ever one of 4 sockets gets none.
const clients = 32

// mustAnswer asks addr by many flows, so that every socket has to answer.
func (c *child) mustAnswer(t *testing.T, addr string) {
	t.Helper()
	for i, conn := range c.dialBy(t, net.Dialer{}, addr, clients) {
		if roundTrip(conn, query("a.test", uint16(i)), patience) == nil {
			t.Errorf("one of %d clients gets no answer from %s\n%s", clients, addr, &c.stderr)
			break
		}
		conn.Close()
	}
}

// ip runs ip(8) in the child's namespace.
func (c *child) ip(t *testing.T, args string) {
	t.Helper()
	path, err := exec.LookPath("ip")
	if err != nil {
		t.Skip("needs ip(8)")
	}
	var out []byte
	c.inside(t, func() { out, err = exec.Command(path, strings.Fields(args)...).CombinedOutput() })
	if err != nil {
		t.Fatalf("ip %s: %v\n%s", args, err, out)
	}
}

// block is a Corefile of one server block that answers at port 5300.
func block(lines ...string) string {
	return fmt.Sprintf(".:%d {\n %s\n answers\n}\n", port, strings.Join(lines, "\n "))
}

const port = 5300
