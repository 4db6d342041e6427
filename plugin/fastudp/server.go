package fastudp

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/miekg/dns"
)

// Server is a stock CoreDNS server whose UDP listener is ours. TCP and all else is the embedded one's.
type Server struct {
	*dnsserver.Server
	address *address
	index   int // among the servers of the address

	mu       sync.Mutex
	listener *listener
	stopped  bool
	stopOnce sync.Once
	stopErr  error
}

func newServer(s *dnsserver.Server, a *address) *Server {
	a.started++
	return &Server{Server: s, address: a, index: a.started - 1}
}

// graceTimeout is stock's: so long Stop waits for handlers.
const graceTimeout = 5 * time.Second

func hostPort(addr string) string { return strings.TrimPrefix(addr, transport.DNS+"://") }

// ListenPacket opens the sockets, or takes those of the server that a reload replaces.
func (s *Server) ListenPacket() (net.PacketConn, error) {
	l, err := s.listen(nil)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// listen makes the listener from first, if any, from what a predecessor hands over and from new sockets.
func (s *Server) listen(first *net.UDPConn) (*listener, error) {
	want := 1
	if severalSockets {
		want = s.address.share(s.index)
	} else {
		log.Infof("%s: this system has one socket for the address and one system call a datagram: SOCKETS, batch and steer have no effect", s.Addr)
	}
	var conns []*net.UDPConn
	if first != nil {
		conns = append(conns, first)
	}
	conns = append(conns, retiring.take(s.Addr, want-len(conns))...)
	b := s.address.opts.buffers()
	have := len(conns)
	addr := hostPort(s.Addr)
	for _, c := range conns {
		if err := b.set(c); err != nil {
			closeAll(conns)
			return nil, err
		}
		addr = samePort(addr, c)
	}
	opened, err := openSockets(addr, want-have, b)
	if err != nil {
		closeAll(conns)
		return nil, err
	}
	conns = append(conns, opened...)
	b.warnCapped(s.Addr, conns[0])
	if !severalSockets {
		// Said already.
	} else if err := steer(conns[0], s.address.opts.Steer, s.address.sockets()); err != nil {
		log.Warningf("%s: steer %s is not to be had, the kernel's hash picks the socket: %v", s.Addr, s.address.opts.Steer, err)
	}
	l, err := newListener(s.Server, s.address, conns)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	return l, nil
}

// ServePacket serves UDP until Stop. After a reload that brings the directive, p is the socket of
// the stock server that retires.
func (s *Server) ServePacket(p net.PacketConn) error {
	l, ok := p.(*listener)
	if !ok {
		c, ok := p.(*net.UDPConn)
		if !ok {
			return errors.New("fastudp: the packet connection is neither ours nor a UDP socket")
		}
		var err error
		if l, err = s.listen(c); err != nil {
			return err
		}
		s.mu.Lock()
		stopped := s.stopped
		s.mu.Unlock()
		if stopped {
			return l.Close()
		}
	}
	return l.serveAll(s.Server.ServePacket, func() dns.DecorateWriter {
		if d, ok := s.address.decorators.Load(s.Server); ok {
			return d.(dns.DecorateWriter)
		}
		return nil
	})
}

// Stop stops reading, answers what was received, and waits for handlers up to the grace time.
func (s *Server) Stop() error {
	s.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), graceTimeout)
		defer cancel()
		s.mu.Lock()
		l := s.listener
		s.stopped = true
		s.mu.Unlock()
		if l != nil {
			defer retiring.remove(l)
		}
		if l == nil {
			s.stopErr = s.Server.Stop()
			return
		}
		l.stopReading(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { s.stopErr = s.Server.Stop() })
		err := l.wait(ctx)
		wg.Wait()
		l.Close()
		if s.stopErr == nil {
			s.stopErr = err
		}
	})
	return s.stopErr
}

// current is the listener, nil before there is one.
func (s *Server) current() *listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}
