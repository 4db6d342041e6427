package fastudp

import (
	"net"
	"slices"
	"sync"

	"github.com/coredns/caddy"
)

// listeners is a set of listeners.
type listeners struct {
	mu  sync.Mutex
	all []*listener
}

var (
	live     listeners // those that serve
	opened   listeners // those whose sockets are open but that do not serve yet
	retiring listeners // those that a reload is about to replace
)

func (s *listeners) add(l *listener) {
	s.mu.Lock()
	s.all = append(s.all, l)
	s.mu.Unlock()
}

func (s *listeners) remove(l *listener) {
	s.mu.Lock()
	s.all = slices.DeleteFunc(s.all, func(x *listener) bool { return x == l })
	s.mu.Unlock()
}

func (s *listeners) list() []*listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// offer puts the listeners of the instance up for its successor, which takes the very sockets, so
// that no datagram is lost that the kernel has queued.
func (t *takeover) offer() error {
	for _, s := range t.servers {
		if l := s.current(); l != nil {
			retiring.add(l)
		}
	}
	return nil
}

// withdraw takes the offer back after a reload that failed, and closes what the failed instance has
// opened: the kernel would give datagrams to sockets that nobody reads.
func (t *takeover) withdraw() error {
	for _, s := range t.servers {
		if l := s.current(); l != nil {
			retiring.remove(l)
			l.mu.Lock()
			clear(l.shared)
			l.mu.Unlock()
		}
	}
	for _, l := range opened.list() {
		alive := slices.ContainsFunc(caddy.Instances(), func(i *caddy.Instance) bool { return takeoverOf(i) == l.owner })
		if !alive {
			l.Close()
		}
	}
	return nil
}

// take duplicates the descriptors of up to n sockets on addr that no other successor has taken.
func (s *listeners) take(addr string, n int) []*net.UDPConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var conns []*net.UDPConn
	for _, l := range s.all {
		if l.addr != addr {
			continue
		}
		l.mu.Lock()
		for i, e := range l.engines {
			if len(conns) >= n || l.closed {
				break
			}
			if l.shared[i] {
				continue
			}
			if c, err := duplicate(e.io.conn()); err == nil {
				l.shared[i] = true
				conns = append(conns, c)
			}
		}
		l.mu.Unlock()
	}
	return conns
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
