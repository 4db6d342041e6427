package fastudp

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// foreignProcess is this test as a process that holds a socket on an address until its input ends.
const foreignProcess = "FASTUDP_FOREIGN_ADDRESS"

func init() {
	addr := os.Getenv(foreignProcess)
	if addr == "" {
		return
	}
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		raw.Control(func(fd uintptr) { err = setReusePort(fd) })
		return err
	}}
	if _, err := lc.ListenPacket(context.Background(), "udp", addr); err != nil {
		os.Stdout.WriteString(err.Error())
	} else {
		os.Stdout.WriteString("ready")
	}
	os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

// startForeign starts the other process; the function returned ends it.
func startForeign(t *testing.T, addr string) (end func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), foreignProcess+"="+addr)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		in.Close()
		cmd.Wait()
	}
	t.Cleanup(end)
	buf := make([]byte, 200)
	if n, _ := out.Read(buf); string(buf[:n]) != "ready" {
		t.Fatalf("the other process: %s", buf[:n])
	}
	return end
}

// spread is how many sockets of l get the queries of one client: all of them with random steering, one with the hash.
func spread(t *testing.T, l *listener) (sockets int) {
	t.Helper()
	c, err := net.Dial("udp", l.engines[0].io.conn().LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := make([]uint64, len(l.engines))
	for i, e := range l.engines {
		before[i] = e.count.received.Load()
	}
	for range 64 { // half of them may go to the other process, and are never answered
		c.Write([]byte("short"))
	}
	ask := func() uint64 {
		var all uint64
		for i, e := range l.engines {
			all += e.count.received.Load() - before[i]
		}
		return all
	}
	for last, same := uint64(0), 0; same < 20; {
		if now := ask(); now == last {
			same++
		} else {
			last, same = now, 0
		}
		time.Sleep(time.Millisecond)
	}
	for i, e := range l.engines {
		if e.count.received.Load() != before[i] {
			sockets++
		}
	}
	return sockets
}

// TestForeignSockets has another process join and leave the group of sockets: nothing is steered meanwhile.
func TestForeignSockets(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "0.0.0.0", "::1", "::"} {
		t.Run(addr, func(t *testing.T) {
			out := watchLog(t)
			inst := startCorefile(t, ".:0 {\nbind "+addr+"\nportable 4 random\nwhoami\n}")
			at := inst.Servers()[0].LocalAddr().String()
			l := serving(t, at)
			if n := spread(t, l); n != 4 {
				t.Errorf("at first %d sockets get a client's queries, want all 4", n)
			}
			if strings.Contains(out.String(), "another process") {
				t.Errorf("nobody else is there:\n%s", out)
			}
			end := startForeign(t, at)
			waitLine(t, out, ": another process has sockets on this address: the kernel's hash")
			if n := spread(t, l); n > 1 {
				t.Errorf("beside another process %d sockets get a client's queries, want at most one", n)
			}
			end()
			waitLine(t, out, ": the other process's sockets are gone: steer random again")
			if n := spread(t, l); n != 4 {
				t.Errorf("alone again %d sockets get a client's queries, want all 4", n)
			}
			if n := strings.Count(out.String(), "another process"); n != 1 {
				t.Errorf("said %d times", n)
			}
		})
	}
}

// TestForeignSocketsFirst finds another process there already.
func TestForeignSocketsFirst(t *testing.T) {
	out := watchLog(t)
	probe, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := probe.LocalAddr().String()
	probe.Close()
	end := startForeign(t, at)
	_, port, _ := net.SplitHostPort(at)
	startCorefile(t, ".:"+port+" {\nbind 127.0.0.1\nportable 4 random\nwhoami\n}")
	l := serving(t, at)
	waitLine(t, out, "another process has sockets on this address")
	if n := spread(t, l); n > 1 {
		t.Errorf("%d sockets get a client's queries, want at most one", n)
	}
	end()
	waitLine(t, out, "steer random again")
	if n := spread(t, l); n != 4 {
		t.Errorf("alone %d sockets get a client's queries, want all 4", n)
	}
}
