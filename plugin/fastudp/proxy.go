package fastudp

import (
	"net"
	"sync"

	cproxyproto "github.com/coredns/coredns/plugin/pkg/proxyproto"
)

// proxyStripper takes the PROXY header off datagrams with CoreDNS's own code, which wants to read
// from a packet connection: it gets one that has just the one datagram.
type proxyStripper struct {
	local net.Addr
	opts  proxyOptions

	mu       sync.Mutex // with session tracking all sockets share what the headers said
	tracking *cproxyproto.PacketConn
}

func newProxyStripper(o proxyOptions, local net.Addr) *proxyStripper {
	if o.policy == nil {
		return nil
	}
	s := &proxyStripper{local: local, opts: o}
	if o.ttl > 0 {
		s.tracking = s.newConn(nil)
	}
	return s
}

func (s *proxyStripper) newConn(c net.PacketConn) *cproxyproto.PacketConn {
	p := &cproxyproto.PacketConn{
		PacketConn: c, ConnPolicy: s.opts.policy,
		UDPSessionTrackingTTL: s.opts.ttl, UDPSessionTrackingMaxSessions: s.opts.maxSessions,
	}
	if s.opts.tlvs {
		optionalField(p, "CaptureTLVs").SetBool(true)
	}
	return p
}

// proxied is a client that a PROXY header has named.
type proxied struct {
	client *cproxyproto.Addr
	from   *net.UDPAddr // who sent the datagram; client wraps it
}

// strip returns the DNS message in data, which it overwrites, and the client that the header names,
// nil without a header. A datagram that the policy rejects is not ok.
func (s *proxyStripper) strip(data []byte, from peer) (msg []byte, client *proxied, ok bool) {
	one := &oneDatagram{stripper: s, data: data, from: net.UDPAddrFromAddrPort(from.addr)}
	conn := s.tracking
	if conn != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		conn.PacketConn = one
	} else {
		conn = s.newConn(one)
	}
	n, addr, err := conn.ReadFrom(data)
	if err != nil {
		return nil, nil, false
	}
	if a, ok := addr.(*cproxyproto.Addr); ok {
		client = &proxied{a, one.from}
	}
	return data[:n], client, true
}

// oneDatagram is a packet connection with one datagram to read.
type oneDatagram struct {
	net.PacketConn // nil: nothing else is called
	stripper       *proxyStripper
	data           []byte
	from           *net.UDPAddr
	read           bool
}

func (o *oneDatagram) ReadFrom(p []byte) (int, net.Addr, error) {
	if o.read {
		return 0, nil, errNoPacket // the datagram was dropped
	}
	o.read = true
	return copy(p, o.data), o.from, nil
}

func (o *oneDatagram) LocalAddr() net.Addr { return o.stripper.local }
