package test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/pires/go-proxyproto"
	"golang.org/x/sys/unix"
)

// TestReloadShortOfDescriptors reloads to more sockets than the process may open: those at hand serve,
// and later reloads work.
func TestReloadShortOfDescriptors(t *testing.T) {
	corefile := func(sockets int) string {
		return fmt.Sprintf(".:%d {\n bind 127.0.0.1\n fastudp %d\n sleep\n}\n", shortPort, sockets)
	}
	shortPort = freePort(t)
	addr := fmt.Sprintf("127.0.0.1:%d", shortPort)
	inst := start(t, corefile(4))
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, spare := range []int{12, 30, 61, 90} { // room for no socket more, for some, for most of them
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		low := limit
		low.Cur = uint64(len(fds) + spare)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		next, err := inst.Restart(input(corefile(64)))
		time.Sleep(200 * time.Millisecond) // sockets are opened after Restart, and nothing tells when that is over
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		inst = next
		t.Logf("%d descriptors to spare: reload %v, %d sockets", spare, err, len(kernelSockets(t, shortPort)))
		for range 50 { // another source port each
			ask(t, "udp", addr, "a.test.")
		}
		if inst, err = inst.Restart(input(corefile(4))); err != nil {
			t.Fatalf("the reload after: %v", err)
		}
	}
	t.Cleanup(func() { stop(inst) })
	if n := len(kernelSockets(t, shortPort)); n != 4 {
		t.Errorf("%d sockets in the end, want 4", n)
	}
}

var shortPort int

// TestReloadProxyProtocol removes the directive and brings it back while the proxyproto plugin stays:
// plugins see the client that the header names, all the time.
func TestReloadProxyProtocol(t *testing.T) {
	port := freePort(t)
	corefile := func(directive string) string {
		return fmt.Sprintf(".:%d {\n bind 127.0.0.1\n %s\n proxyproto {\n  allow 127.0.0.0/8\n }\n whoami\n}\n", port, directive)
	}
	header := proxyproto.HeaderProxyFromAddrs(2, &net.UDPAddr{IP: net.IPv4(10, 9, 8, 7), Port: 4321}, &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 53})
	var msg bytes.Buffer
	if _, err := header.WriteTo(&msg); err != nil {
		t.Fatal(err)
	}
	// The ID is what the header begins with, by which roundTrip knows the answer.
	msg.Write(setID(query("example.org.", dns.TypeA), 0x0d0a))

	inst := start(t, corefile("fastudp 3"))
	for i, directive := range []string{"fastudp 3", "", "", "fastudp 2", "fastudp 5", "", "fastudp 1"} {
		next, err := inst.Restart(input(corefile(directive)))
		if err != nil {
			t.Fatal(err)
		}
		inst = next
		for range 10 {
			c := dial(t, fmt.Sprintf("127.0.0.1:%d", port))
			r := new(dns.Msg)
			if err := r.Unpack(roundTrip(t, c, msg.Bytes(), 2*time.Second)); err != nil {
				t.Fatalf("reload %d to %q: %v", i, directive, err)
			}
			if len(r.Extra) == 0 || r.Extra[0].(*dns.A).A.String() != "10.9.8.7" {
				t.Fatalf("reload %d to %q: whoami says %v", i, directive, r.Extra)
			}
		}
	}
	t.Cleanup(func() { stop(inst) })
}

// TestReloadWriteBuffer takes write_buffer away: the sockets have the system's default again, all of them.
func TestReloadWriteBuffer(t *testing.T) {
	fresh, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	port := freePort(t)
	corefile := func(block string) string {
		return fmt.Sprintf(".:%d {\n bind 127.0.0.1\n fastudp %s\n sleep\n}\n", port, block)
	}
	inst := start(t, corefile("2 {\n write_buffer 8KiB\n }"))
	if got := option(t, port, unix.SOL_SOCKET, unix.SO_SNDBUF); got != 16<<10 {
		t.Errorf("SO_SNDBUF is %d, want %d", got, 16<<10)
	}
	next, err := inst.Restart(input(corefile("5")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(next) })
	eventually(t, "all sockets are open", patience, func() bool { return len(kernelSockets(t, port)) == 5 })
	want := option(t, fresh.LocalAddr().(*net.UDPAddr).Port, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if got := option(t, port, unix.SOL_SOCKET, unix.SO_SNDBUF); got != want {
		t.Errorf("SO_SNDBUF is %d after the reload, of a fresh socket %d", got, want)
	}
}
