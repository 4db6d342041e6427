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

	"github.com/coredns/caddy"
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
	at := freeAddress(t)
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

// TestSteerToHash reloads from random steering to the hash and back: no program stays behind.
func TestSteerToHash(t *testing.T) {
	at := freeAddress(t)
	_, port, _ := net.SplitHostPort(at)
	corefile := func(steer string) caddy.Input {
		return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(".:" + port + " {\nbind 127.0.0.1\nportable 4 " + steer + "\nwhoami\n}"), ServerTypeName: "dns"}
	}
	inst, err := caddy.Start(corefile("random"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { inst.Stop() }()
	for i := range 30 {
		way, want := "hash", 1
		if i%2 == 1 {
			way, want = "random", 4
		}
		if inst, err = inst.Restart(corefile(way)); err != nil {
			t.Fatal(err)
		}
		if n := spread(t, successor(t, at)); n != want {
			t.Errorf("reload %d: with steer %s %d sockets get a client's queries, want %d", i, way, n, want)
		}
	}
}

// TestForeignThenReload reloads before anybody has seen that another process has come.
func TestForeignThenReload(t *testing.T) {
	out := watchLog(t)
	watchPeriod = time.Hour
	at := freeAddress(t)
	_, port, _ := net.SplitHostPort(at)
	inst := startCorefile(t, ".:"+port+" {\nbind 127.0.0.1\nportable 4 random\nwhoami\n}")
	serving(t, at)
	startForeign(t, at)
	next, err := inst.Restart(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Stop()
	waitLine(t, out, "another process has sockets on this address")
	if n := spread(t, successor(t, at)); n > 1 {
		t.Errorf("%d sockets get a client's queries, want at most one", n)
	}
}

// TestForeignOwnSockets looks while sockets of this process come and go: none is taken for another's.
func TestForeignOwnSockets(t *testing.T) {
	conns, err := openSockets("127.0.0.1:0", 1, buffers{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(conns)
	end, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			default:
			}
			if more, err := openSockets(conns[0].LocalAddr().String(), 4, buffers{}); err == nil {
				time.Sleep(time.Millisecond)
				closeAll(more)
			}
		}
	}()
	for range 300 {
		if foreignSocket(conns[0]) {
			t.Error("one of ours is taken for another process's")
			break
		}
	}
	close(end)
	<-done
}

// freeAddress is one that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	probe, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	return probe.LocalAddr().String()
}

// successor waits until nobody but the newest listener on the address is left.
func successor(t *testing.T, addr string) *listener {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		n := 0
		for _, l := range live.list() {
			if l.local.String() == addr {
				n++
			}
		}
		if n == 1 {
			return serving(t, addr)
		}
	}
	t.Fatal("the old listener stays")
	return nil
}
