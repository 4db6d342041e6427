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

// server is a stock CoreDNS server whose UDP listener is ours. TCP and all else is the embedded one's.
type server struct {
	*dnsserver.Server
	address *address
	index   int // among the servers of the address

	mu        sync.Mutex
	inherited []*net.UDPConn // sockets of a predecessor that caddy does not hand over
	steered   bool           // a predecessor may have steered their group
	listener  *listener
	listens   chan struct{} // closed when listener is set first
	serving   bool          // ServePacket has been called
	stopped   bool
	stopOnce  sync.Once
	stopErr   error
}

func newServer(s *dnsserver.Server, a *address) *server {
	a.started++
	return &server{Server: s, address: a, index: a.started - 1, listens: make(chan struct{})}
}

// graceTimeout is stock's: so long Stop waits for handlers.
const graceTimeout = 5 * time.Second

func hostPort(addr string) string { return strings.TrimPrefix(addr, transport.DNS+"://") }

// ListenPacket opens the sockets. In a reload caddy does not ask for it if it has the first socket of
// the predecessor.
func (s *server) ListenPacket() (net.PacketConn, error) {
	l, err := s.listen(nil)
	if err != nil {
		return nil, err
	}
	if l.proxy != nil {
		return hidden{l, l}, nil
	}
	return l, nil
}

// inherit takes the sockets of the server that a reload replaces but for the first, which caddy hands over.
func (s *server) inherit() {
	if !severalSockets {
		return
	}
	s.steered = steered(s.Addr)
	s.inherited = take(s, s.address.share(s.index))
	if len(s.inherited) > 0 {
		opened.add(s)
	}
}

// orphanedAfter is how long sockets may be open before they are served. Caddy serves them at once
// unless another listener fails to open, of which it tells nobody.
const orphanedAfter = 3 * time.Second

// watch has the sockets closed if they are not served soon.
func (s *server) watch() {
	opened.add(s)
	time.AfterFunc(orphanedAfter, s.abandon)
}

// listen makes the listener from first, if any, from what was inherited and from new sockets. With a
// socket in hand it never fails for want of more: by then a reload can not be refused any longer.
func (s *server) listen(first *net.UDPConn) (*listener, error) {
	want := 1
	if severalSockets {
		want = s.address.share(s.index)
	} else {
		log.Infof("%s: this system has one socket for the address and one system call a datagram: SOCKETS, batch and steer have no effect", s.Addr)
	}
	s.mu.Lock()
	conns := s.inherited
	s.inherited = nil
	s.mu.Unlock()
	if first != nil {
		conns = append([]*net.UDPConn{first}, conns...)
	}
	b := s.address.opts.buffers()
	addr := hostPort(s.Addr)
	for _, c := range conns {
		b.reset(c) // as far as it goes: a size that was refused would be refused for a new socket too
		addr = samePort(addr, c)
	}
	more, err := openSockets(addr, want-len(conns), b)
	if err != nil {
		if len(conns) == 0 {
			return nil, err
		}
		log.Errorf("%s: serving with %d sockets instead of %d: %v", s.Addr, len(conns), want, err)
	}
	conns = append(conns, more...)
	b.warnCapped(s.Addr, conns[0])
	l, err := newListener(s.Server, s.address, conns, first != nil)
	if err != nil {
		return nil, err
	}
	for i := range s.index {
		l.firstSocket += s.address.share(i)
	}
	l.steering = steering{how: s.address.opts.Steer, sockets: s.address.sockets(), program: s.steered}
	l.steer()
	s.mu.Lock()
	s.listener = l
	select {
	case <-s.listens:
	default:
		close(s.listens)
	}
	stopped, serving := s.stopped, s.serving
	s.mu.Unlock()
	if !serving {
		s.watch()
	}
	if stopped {
		l.Close() // Stop came first
	}
	return l, nil
}

// ServePacket serves UDP until Stop. After a reload p is the first socket of the server that retires.
func (s *server) ServePacket(p net.PacketConn) error {
	s.mu.Lock()
	s.serving = true
	s.mu.Unlock()
	opened.remove(s)
	if h, ok := p.(hidden); ok {
		p = h.listener
	}
	l, ok := p.(*listener)
	if ok && s.current() == nil {
		// The machine stood still for so long that the sockets were taken for orphans.
		var err error
		if l, err = s.listen(nil); err != nil {
			return err
		}
	}
	if !ok {
		c, ok := p.(*net.UDPConn)
		if !ok {
			return errors.New("fastudp: the packet connection is neither ours nor a UDP socket")
		}
		var err error
		if l, err = s.listen(c); err != nil {
			return err
		}
	}
	return l.serveAll(s.Server.ServePacket, func() dns.DecorateWriter {
		if d, ok := s.address.decorators.Load(s.Server); ok {
			return d.(dns.DecorateWriter)
		}
		return nil
	})
}

// abandon closes the sockets of a server that will not serve.
func (s *server) abandon() {
	s.mu.Lock()
	if s.serving {
		s.mu.Unlock()
		return
	}
	conns, l := s.inherited, s.listener
	s.inherited, s.listener = nil, nil
	s.mu.Unlock()
	opened.remove(s)
	closeAll(conns)
	if l != nil {
		l.Close()
	}
}

// Stop stops reading, answers what was received, and waits for handlers up to the grace time.
func (s *server) Stop() error {
	s.stopOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), graceTimeout)
		defer cancel()
		l := s.await()
		s.mu.Lock()
		s.stopped = true
		s.mu.Unlock()
		if l == nil {
			s.stopErr = s.Server.Stop()
			return
		}
		defer retiring.remove(l)
		l.stopReading()
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

// startLimit is how long a stop or a reload waits for a start that is under way: caddy starts servers
// in the background.
const startLimit = time.Second

// await is the listener, when there is one.
func (s *server) await() *listener {
	select {
	case <-s.listens:
	case <-time.After(startLimit):
	}
	return s.current()
}

// current is the listener, nil before there is one.
func (s *server) current() *listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}
