package fastudp

import (
	"context"
	"fmt"
	"net"
	"strings"
	"syscall"

	clog "github.com/coredns/coredns/plugin/pkg/log"
)

var log = clog.NewWithPlugin("fastudp")

// openSockets opens n sockets on addr (host:port) with SO_REUSEPORT, all or none. With port 0 the
// first takes a free port and the others join it.
func openSockets(addr string, n int, b buffers) ([]*net.UDPConn, error) {
	var conns []*net.UDPConn
	for i := range n {
		c, err := openSocket(addr)
		if err != nil {
			closeAll(conns)
			if i > 0 { // of the first stock would say the same
				err = fmt.Errorf("socket %d of %d: %w", i+1, n, err)
			}
			return nil, err
		}
		conns = append(conns, c)
		refused := b.set(c)
		if i == 0 {
			addr = samePort(addr, c)
			if _, known := bufferSize(c, readBuffer); refused != nil && !known { // else warnCapped says it
				log.Warningf("%s: serving with the system's buffer: %v", addr, refused)
			}
		}
	}
	return conns, nil
}

func closeAll(conns []*net.UDPConn) {
	for _, c := range conns {
		c.Close()
	}
}

// samePort is addr with the port that c got.
func samePort(addr string, c *net.UDPConn) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	_, port, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return addr
	}
	return net.JoinHostPort(host, port)
}

// openSocket listens as CoreDNS does, so that the socket's family and address are those of stock.
func openSocket(addr string) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) { err = setReusePort(fd) }); e != nil {
			return e
		}
		return err
	}}
	p, err := lc.ListenPacket(context.Background(), "udp", addr)
	if err != nil {
		return nil, err
	}
	return p.(*net.UDPConn), nil
}

// needsPktinfo says whether the kernel must tell to which address a query to addr (host:port) came, so
// that the answer comes from there: it may be any on a wildcard. Nothing can come from a multicast or
// broadcast address, and without asking for just that the kernel would choose another one.
func needsPktinfo(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	host, _, _ = strings.Cut(host, "%")
	ip := net.ParseIP(host)
	return host == "" || ip != nil && (ip.IsUnspecified() || ip.IsMulticast() || broadcast(ip))
}
