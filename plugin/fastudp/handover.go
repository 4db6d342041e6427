package fastudp

import (
	"net"
	"slices"
	"sync"

	"github.com/coredns/caddy"
)

// A reload hands the sockets of a listener over to its successor, so that no datagram is lost that
// the kernel has queued. Caddy hands over the first one, to a stock successor too. The others are
// taken from the listeners that the old instance has offered.

// set is a set that several goroutines use.
type set[T comparable] struct {
	mu  sync.Mutex
	all []T
}

var (
	live     set[*listener] // those that serve, in the order in which they began
	retiring set[*listener] // those that a reload is about to replace
	opened   set[*server]   // those that have sockets but do not serve yet
)

func (s *set[T]) add(x T) {
	s.mu.Lock()
	s.all = append(s.all, x)
	s.mu.Unlock()
}

func (s *set[T]) remove(x T) {
	s.mu.Lock()
	s.all = slices.DeleteFunc(s.all, func(y T) bool { return x == y })
	s.mu.Unlock()
}

func (s *set[T]) list() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// offer puts the listeners of the instance up for its successor.
func (t *takeover) offer() error {
	for _, s := range t.servers {
		if l := s.await(); l != nil {
			retiring.add(l)
		}
	}
	return nil
}

// withdraw takes the offer back after a reload that failed, and closes what was opened on our
// addresses: the kernel would give datagrams to sockets that nobody reads.
func (t *takeover) withdraw() error {
	for _, s := range t.servers {
		if l := s.current(); l != nil {
			retiring.remove(l)
			l.mu.Lock()
			clear(l.shared)
			l.filed, l.heirs = false, nil
			l.mu.Unlock()
		}
	}
	for _, s := range opened.list() {
		if slices.ContainsFunc(t.servers, func(mine *server) bool { return mine.Addr == s.Addr }) {
			s.abandon()
		}
	}
	return nil
}

// steered says whether the group of sockets on addr may have a program that we have attached.
func steered(addr string) bool {
	return caddy.IsUpgrade() || slices.ContainsFunc(retiring.list(), func(l *listener) bool { return l.addr == addr && l.steering.how != SteerHash })
}

// take duplicates for heir the descriptors of up to n sockets of the retiring listeners on its address, without those
// that caddy hands over, which count as one, and without those that another successor has taken.
func take(heir *server, n int) []*net.UDPConn {
	addr := heir.Addr
	var conns []*net.UDPConn
	caddys := 0
	for _, l := range retiring.list() {
		if l.addr != addr {
			continue
		}
		first := 0
		if l.caddyHas() {
			first = 1
			n -= 1 - caddys
			caddys = 1
		}
		l.mu.Lock()
		l.heirs = append(l.heirs, heir)
		for i := first; i < len(l.engines) && len(conns) < n && !l.closed; i++ {
			if l.shared[i] {
				continue
			}
			if c, err := duplicate(l.engines[i].io.conn()); err == nil {
				l.shared[i] = true
				conns = append(conns, c)
			}
		}
		l.mu.Unlock()
	}
	return conns
}

// handedOn says whether caddy has given the first socket to a successor, which then reads it too. Caddy
// asks us for a descriptor of it, unless it had the socket from a predecessor already.
func (l *listener) handedOn() bool {
	l.mu.Lock()
	filed, heirs := l.filed, slices.Clone(l.heirs)
	l.mu.Unlock()
	if filed || !l.lent || len(heirs) == 0 {
		return filed || l.lent
	}
	mine := cookie(l.engines[0].io.conn())
	return slices.ContainsFunc(heirs, func(s *server) bool {
		heir := s.await()
		return heir == nil || slices.ContainsFunc(heir.engines, func(e *engine) bool { return cookie(e.io.conn()) == mine })
	})
}

// duplicate makes a second descriptor for the socket of c.
func duplicate(c *net.UDPConn) (*net.UDPConn, error) {
	f, err := c.File()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return p.(*net.UDPConn), nil
}
