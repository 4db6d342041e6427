package faults

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The server's and the client's end of a link between two namespaces.
const (
	serverIP, clientIP   = "10.77.0.1", "10.77.0.2"
	serverIP6, clientIP6 = "fd77::1", "fd77::2"
	serverAddr           = serverIP + ":5300"
	serverAddr6          = "[" + serverIP6 + "]:5300"
)

// link makes two children that are linked as hosts are.
func link(t *testing.T) (server, client *child) {
	t.Helper()
	server, client = newChild(t), newChild(t)
	server.ip(t, fmt.Sprint("link add server0 type veth peer name client0 netns ", client.cmd.Process.Pid))
	server.ip(t, "addr add "+serverIP+"/24 dev server0")
	server.ip(t, "addr add "+serverIP6+"/64 dev server0 nodad")
	client.ip(t, "addr add "+clientIP+"/24 dev client0")
	client.ip(t, "addr add "+clientIP6+"/64 dev client0 nodad")
	server.ip(t, "link set server0 up")
	client.ip(t, "link set client0 up")
	return server, client
}

// silent wants no answer from addr.
func (c *child) silent(t *testing.T, addr string) {
	t.Helper()
	if roundTrip(c.dial(t, addr), query("a.test", 1), 100*time.Millisecond) != nil {
		t.Error("there is an answer: the fault is none")
	}
}

// recovers wants answers from addr as soon as the network has settled.
func (c *child) recovers(t *testing.T, addr string) {
	t.Helper()
	eventually(t, "there are answers again", func() bool {
		return roundTrip(c.dial(t, addr), query("a.test", 1), 100*time.Millisecond) != nil
	})
	c.mustAnswer(t, addr)
}

// TestLink has the network go away in several ways, and come again.
func TestLink(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ name, addr, goes, comes string }{
		{"address", serverAddr, "addr del 10.77.0.1/24 dev server0", "addr add 10.77.0.1/24 dev server0"},
		{"IPv6 address", serverAddr6, "addr del fd77::1/64 dev server0", "addr add fd77::1/64 dev server0 nodad"},
		{"interface", serverAddr, "link set server0 down", "link set server0 up"},
		{"no route back", serverAddr, "rule add iif lo to 10.77.0.2 prohibit", "rule del iif lo to 10.77.0.2 prohibit"},
		{"no IPv6 route back", serverAddr6, "-6 rule add iif lo to fd77::2 prohibit", "-6 rule del iif lo to fd77::2 prohibit"},
	} {
		for _, bind := range []string{"bind " + serverIP + " " + serverIP6, ""} {
			if bind == "" && v.addr == serverAddr6 {
				continue // as with IPv4
			}
			t.Run(v.name+" "+bind, func(t *testing.T) {
				t.Parallel()
				both(t, func(t *testing.T, directive string) {
					server, client := link(t)
					server.start(t, block(bind, directive, "prometheus"))
					client.mustAnswer(t, v.addr)
					server.ip(t, v.goes)
					for range 10 {
						client.silent(t, v.addr)
					}
					if strings.HasPrefix(v.name, "no ") && directive != "" {
						if n := server.look(t).Metrics["fastudp_send_errors_total EACCES"]; n != 10 {
							t.Errorf("%v responses of 10 are counted as refused", n)
						}
					}
					server.ip(t, v.comes)
					client.recovers(t, v.addr)
					if w := server.warned(); len(w) > 0 {
						t.Errorf("it says %q", w)
					}
				})
			})
		}
	}
}

// TestLinkOneClientGone has one client become unreachable: the others lose nothing by it.
func TestLinkOneClientGone(t *testing.T) {
	t.Parallel()
	server, client := link(t)
	client.ip(t, "addr add 10.77.0.3/24 dev client0")
	server.start(t, block("bind "+serverIP, "fastudp 1", "prometheus"))
	server.ip(t, "rule add iif lo to 10.77.0.3 prohibit")
	gone, here := client.dialFrom(t, "10.77.0.3", serverAddr), client.dial(t, serverAddr)
	const n = 500
	for i := range n { // both in one batch of responses
		gone.Write(query("a.test", uint16(i)))
		if roundTrip(here, query("a.test", uint16(i)), patience) == nil {
			t.Fatalf("no answer to query %d of the client that is reachable", i)
		}
	}
	eventually(t, "the responses to the other are counted", func() bool {
		return server.look(t).Metrics["fastudp_send_errors_total EACCES"] == n
	})
}

// TestLinkTentative starts on an IPv6 address that the kernel has yet to see unique.
func TestLinkTentative(t *testing.T) {
	t.Parallel()
	said := make(map[string]string)
	for _, v := range []struct{ name, directive string }{{"stock", ""}, {"fastudp", "fastudp 2"}} {
		server, client := link(t)
		if err := server.sysctl(t, "net/ipv6/conf/server0/dad_transmits", "2"); err != nil {
			t.Skipf("addresses cannot be tentative here: %v", err)
		}
		server.ip(t, "addr add fd77::3/64 dev server0")
		_, said[v.name] = server.do(t, order{Do: "start", Corefile: block("bind fd77::3", v.directive)})
		if err := said[v.name]; err == "" || !strings.Contains(err, "[fd77::3]:5300") {
			t.Errorf("%s: the error does not name the address: %q", v.name, err)
		}
		eventually(t, "the address is to be had", func() bool {
			_, err := server.do(t, order{Do: "start", Corefile: block("bind fd77::3", v.directive)})
			return err == ""
		})
		client.mustAnswer(t, "[fd77::3]:5300")
	}
	if said["stock"] != said["fastudp"] {
		t.Errorf("stock says %q, fastudp %q", said["stock"], said["fastudp"])
	}
}

// TestLinkNoAddress starts on an address that the host does not have, alone and beside one that it has.
func TestLinkNoAddress(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, directive string) {
		c := newChild(t)
		for _, bind := range []string{"192.0.2.1", "127.0.0.1 192.0.2.1", "2001:db8::1", "127.0.0.1 2001:db8::1"} {
			_, err := c.do(t, order{Do: "start", Corefile: block("bind "+bind, directive)})
			_, missing, _ := strings.Cut(" "+bind, "127.0.0.1")
			if missing = strings.TrimSpace(missing); missing == "" {
				missing = bind
			}
			if !strings.Contains(err, missing) || !strings.Contains(err, "cannot assign requested address") {
				t.Errorf("bind %s: the error does not name the cause and the address: %q", bind, err)
			}
			if directive != "" {
				eventually(t, "no socket is left", func() bool { return c.sockets(t, port) == 0 })
			}
		}
	})
}

// TestLinkNoIPv6 serves all addresses of a host without IPv6.
func TestLinkNoIPv6(t *testing.T) {
	t.Parallel()
	for _, mmsg := range []bool{true, false} {
		t.Run(fmt.Sprint("mmsg ", mmsg), func(t *testing.T) {
			t.Parallel()
			c := newChild(t)
			rs := []refusal{{Call: unix.SYS_SOCKET, Errno: unix.EAFNOSUPPORT, Args: map[int]int{0: unix.AF_INET6}}}
			if !mmsg {
				rs = append(rs, refusal{Call: unix.SYS_RECVMMSG, Errno: unix.ENOSYS})
			}
			c.must(t, order{Do: "refuse", Refuse: rs})
			if got := c.start(t, block("fastudp 2")); got[0] != "0.0.0.0:5300" {
				t.Fatalf("it listens on %s", got)
			}
			for _, addr := range twoAddresses {
				c.mustAnswer(t, addr)
			}
			if n := c.sockets(t, port); n != 2 {
				t.Errorf("%d sockets, not 2", n)
			}
		})
	}
}

func (c *child) sysctl(t *testing.T, name, value string) (err error) {
	t.Helper()
	c.inside(t, func() { err = os.WriteFile("/proc/sys/"+name, []byte(value), 0) })
	return err
}
