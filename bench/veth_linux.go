package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// newVeth makes the namespaces; the error says what it lacks.
func newVeth(ctx context.Context) (*veth, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("it needs root")
	}
	for tool, pkg := range map[string]string{"ip": "iproute2", "kxdpgun": "knot-dnsutils"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is missing (on Debian: apt-get install %s)", tool, pkg)
		}
	}
	v := &veth{fmt.Sprintf("fastudp-bench-%d-s", os.Getpid()), fmt.Sprintf("fastudp-bench-%d-c", os.Getpid())}
	for _, c := range []string{
		"netns add " + v.server, "netns add " + v.client,
		"link add v0 netns " + v.server + " type veth peer name v1 netns " + v.client,
		"-n " + v.server + " addr add " + vethServer + "/30 dev v0", "-n " + v.client + " addr add " + vethClient + "/30 dev v1",
		"-n " + v.server + " link set lo up", "-n " + v.server + " link set v0 up", "-n " + v.client + " link set v1 up",
	} {
		if err := command(ctx, append([]string{"ip"}, strings.Fields(c)...)...); err != nil {
			v.close()
			return nil, err
		}
	}
	return v, nil
}

// close removes the namespaces, and with them the link.
func (v *veth) close() {
	for _, ns := range []string{v.server, v.client} {
		exec.Command("ip", "netns", "del", ns).Run()
	}
}

// dialIn connects from inside a namespace; a socket stays in the one in which it was made.
func dialIn(ctx context.Context, netns, network, addr string) (net.Conn, error) {
	if netns == "" {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		f, err := os.Open("/run/netns/" + netns)
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		done <- result{c, err}
	}()
	r := <-done
	return r.conn, r.err
}

// httpIn is a client inside a namespace.
func httpIn(netns string) *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialIn(ctx, netns, network, addr)
		},
	}}
}
