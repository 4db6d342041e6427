package test

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
)

// listenerList says for each server of inst where it listens, sorted: CoreDNS makes them in no order.
func listenerList(inst *caddy.Instance) []string {
	var all []string
	for _, s := range inst.Servers() {
		all = append(all, fmt.Sprintf("tcp %v udp %v", s.Addr(), s.LocalAddr()))
	}
	slices.Sort(all)
	return all
}

func TestSeamServersAreStocks(t *testing.T) {
	p1, p2 := freePort(t), freePort(t)
	corefile := fmt.Sprintf(`example.:%[1]d test.:%[2]d {
	bind 127.0.0.1 127.0.0.2 ::1
	fastudp 3
	sleep
}
.:%[1]d {
	bind 127.0.0.3
	multisocket 2
	fastudp
	sleep
}
other.:%[2]d {
	bind 127.0.0.4
	sleep
}`, p1, p2)
	var lists [][]string
	for _, c := range []string{stock(corefile), corefile} {
		inst := start(t, c)
		lists = append(lists, listenerList(inst))
		stop(inst)
	}
	if len(lists[0]) != 9 {
		t.Errorf("stock has the listeners %q, expected 9", lists[0])
	}
	if !slices.Equal(lists[0], lists[1]) {
		t.Errorf("stock listens on\n%q\nfastudp on\n%q", lists[0], lists[1])
	}
}

// TestSeamCaddyfile: reload and the signals go by what Caddyfile says.
func TestSeamCaddyfile(t *testing.T) {
	c := input(".:0 {\n\tbind 127.0.0.1\n\tfastudp 2\n\tsleep\n}\n")
	c.Filepath = "some/Corefile"
	check := func(t *testing.T, inst *caddy.Instance) {
		t.Helper()
		got := inst.Caddyfile()
		if got.Path() != c.Path() || !bytes.Equal(got.Body(), c.Body()) || got.ServerType() != c.ServerType() {
			t.Errorf("Caddyfile is %q %q %q", got.Path(), got.Body(), got.ServerType())
		}
	}
	inst, err := caddy.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { stop(inst) }()
	check(t, inst)
	for range 3 {
		if inst, err = inst.Restart(nil); err != nil {
			t.Fatal(err)
		}
		check(t, inst)
		ask(t, "udp", udpAddrs(inst)[0], "a.test.")
	}

	c.Contents = append(c.Contents, "# a comment\n"...)
	if inst, err = inst.Restart(c); err != nil {
		t.Fatal(err)
	}
	check(t, inst)
}

// TestSeamGob does with the Caddyfile what SIGUSR2 does to give it to the next process.
func TestSeamGob(t *testing.T) {
	type transfer struct {
		ListenerFds map[string]uintptr
		Caddyfile   caddy.Input
	}
	inst := start(t, ".:0 {\n\tbind 127.0.0.1\n\tfastudp\n\tsleep\n}\n")
	for range 2 { // also what is made from what has been decoded
		var b bytes.Buffer
		var got transfer
		if err := gob.NewEncoder(&b).Encode(transfer{Caddyfile: inst.Caddyfile()}); err != nil {
			t.Fatal(err)
		}
		if err := gob.NewDecoder(&b).Decode(&got); err != nil {
			t.Fatal(err)
		}
		in, ok := got.Caddyfile.(caddy.CaddyfileInput)
		if want := inst.Caddyfile(); !ok || !bytes.Equal(in.Contents, want.Body()) || in.Filepath != want.Path() || in.ServerTypeName != "dns" {
			t.Fatalf("decoded %T %+v", got.Caddyfile, got.Caddyfile)
		}
		next, err := inst.Restart(got.Caddyfile)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stop(next) })
		inst = next
	}
}

// TestSeamGetConfigAtStartup: with our context in place dnsserver.GetConfig would panic.
func TestSeamGetConfigAtStartup(t *testing.T) {
	variants(t, "example.:0 test.:0 {\n\tbind 127.0.0.1\n\tfastudp\n\tsleep\n}\nother.:0 {\n\tbind 127.0.0.1\n\tsleep\n}\n", func(t *testing.T, corefile string) {
		startups.Clear()
		inst := start(t, corefile)
		for range 2 {
			for _, zone := range []string{"example.", "other."} {
				h, ok := startups.LoadAndDelete(zone)
				if _, same := h.(sleeper); !ok || !same {
					t.Errorf("GetConfig for %s at startup: found %t, handler %v", zone, ok, h)
				}
			}
			next, err := inst.Restart(nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { stop(next) })
			inst = next
		}
	})
}

func TestSeamValidateOnly(t *testing.T) {
	variants(t, ".:0 {\n\tfastudp 3 {\n\t\tbatch 7\n\t}\n\tsleep\n}\n", func(t *testing.T, corefile string) {
		if err := caddy.ValidateAndExecuteDirectives(input(corefile), nil, true); err != nil {
			t.Error(err)
		}
		if n := len(caddy.Instances()); n != 0 {
			t.Errorf("%d instances after a validation", n)
		}
		start(t, corefile) // a validation leaves nothing in the way
	})
	err := caddy.ValidateAndExecuteDirectives(input(".:0 {\n\tfastudp many\n}\n"), nil, true)
	if err == nil || !strings.Contains(err.Error(), "Corefile:2") {
		t.Errorf("a bad argument gives %v", err)
	}
}

func TestSeamUntouchedWithoutDirective(t *testing.T) {
	corefile := ".:0 {\n\tbind 127.0.0.1\n\tfastudp\n\tsleep\n}\n"
	for _, v := range []struct {
		corefile string
		series   bool
	}{{stock(corefile), false}, {corefile, true}} {
		inst := start(t, v.corefile)
		addr := udpAddrs(inst)[0]
		ask(t, "udp", addr, "a.test.")
		if got := series(t, "received_total", addr); (len(got) > 0) != v.series || (v.series && total(got) != 1) {
			t.Errorf("coredns_fastudp_received_total for %s is %v with\n%s", addr, got, v.corefile)
		}
		_, isCaddys := inst.Caddyfile().(caddy.CaddyfileInput) // ours is a pointer to it
		if isCaddys == v.series {
			t.Errorf("the instance's input is a %T with\n%s", inst.Caddyfile(), v.corefile)
		}
	}
}

func TestSeamSeesWhatStockSees(t *testing.T) {
	var got []seen
	variants(t, ".:0 {\n\tbind 127.0.0.1\n\tfastudp\n\tsleep\n}\n", func(t *testing.T, corefile string) {
		inst := start(t, corefile)
		addr := udpAddrs(inst)[0]
		c := dial(t, addr)
		if roundTrip(t, c, query("seen-by.test.", 1), patience) == nil {
			t.Fatal("no answer")
		}
		v, _ := seens.LoadAndDelete("seen-by.test.")
		s := v.(seen)
		if s.local.String() != addr || s.remote.String() != c.LocalAddr().String() {
			t.Errorf("local %v remote %v, expected %v and %v", s.local, s.remote, addr, c.LocalAddr())
		}
		if srv, ok := s.server.(*dnsserver.Server); !ok || srv.Address() != "dns://127.0.0.1:0" {
			t.Errorf("the context's server is %T", s.server)
		}
		got = append(got, s)
	})
	for i, kind := range []func(seen) string{
		func(s seen) string { return fmt.Sprintf("%T", s.local) },
		func(s seen) string { return fmt.Sprintf("%T", s.remote) },
		func(s seen) string { return fmt.Sprintf("%T", s.server) },
		func(s seen) string { return fmt.Sprintf("%T %v", s.loop, s.loop) },
		func(s seen) string { return fmt.Sprint(len(s.remote.(*net.UDPAddr).IP.To4())) },
	} {
		if len(got) == 2 && kind(got[0]) != kind(got[1]) {
			t.Errorf("%d: stock %s, fastudp %s", i, kind(got[0]), kind(got[1]))
		}
	}
}

// TestSeamTwoInstances: both have the same server address, which names neither of their sockets.
func TestSeamTwoInstances(t *testing.T) {
	corefile := ".:0 {\n\tbind 127.0.0.1\n\tfastudp 2\n\tsleep\n}\n"
	a, b := start(t, corefile), start(t, corefile)
	addrA, addrB := udpAddrs(a)[0], udpAddrs(b)[0]
	if addrA == addrB {
		t.Fatalf("both listen on %s", addrA)
	}
	next, err := a.Restart(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { stop(next) }()
	if got := udpAddrs(next)[0]; got != addrA {
		t.Errorf("the restarted instance moved from %s to %s", addrA, got)
	}
	ask(t, "udp", addrA, "a.test.")
	ask(t, "udp", addrB, "b.test.")
	stop(next)
	ask(t, "udp", addrB, "c.test.")
	if got := total(series(t, "received_total", addrB)); got != 2 {
		t.Errorf("the other instance received %v queries, expected its 2", got)
	}
}

// TestSeamFailedStart: what fails after our setup leaves no socket and no state behind.
func TestSeamFailedStart(t *testing.T) {
	for _, how := range []string{"fail", "fail-startup", "a port that is taken"} {
		t.Run(how, func(t *testing.T) {
			port := freePort(t)
			corefile := fmt.Sprintf(".:%d {\n\tbind 127.0.0.1\n\tfastudp 2\n\tsleep %s\n}\n", port, how)
			want := "as asked"
			if how == "a port that is taken" {
				taken, err := net.ListenPacket("udp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer taken.Close()
				want = "address already in use"
				// Of both kinds, for CoreDNS makes servers in no order.
				corefile = fmt.Sprintf(".:%d {\n\tbind 127.0.0.1\n\tfastudp 2\n\tsleep\n}\n.:%d {\n\tbind 127.0.0.1\n\tfastudp 2\n\tsleep\n}\n",
					port, taken.LocalAddr().(*net.UDPAddr).Port)
			}
			for range 6 {
				if got := startErr(t, corefile); !strings.Contains(got, want) {
					t.Fatalf("error %q, expected %q", got, want)
				}
				if n := len(caddy.Instances()); n != 0 {
					t.Fatalf("%d instances are left", n)
				}
				// Caddy tells nobody that a start has failed: it takes a moment to be noticed.
				eventually(t, "the port can be bound after the failed start", patience, func() bool {
					c, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
					if err == nil {
						c.Close()
					}
					return err == nil
				})
			}
			inst := start(t, fmt.Sprintf(".:%d {\n\tbind 127.0.0.1\n\tfastudp 2\n\tsleep\n}\n", port))
			ask(t, "udp", udpAddrs(inst)[0], "a.test.")
		})
	}
}
