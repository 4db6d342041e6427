package fastudp

import (
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
	"weak"

	cproxyproto "github.com/coredns/coredns/plugin/pkg/proxyproto"
	"github.com/miekg/dns"
)

// stockConn is the packet connection that the embedded stock server reads unusual messages from and
// writes their answers to. Stock starts a goroutine for each message, so the number of messages
// that are not answered is bounded here, those left out that are older than any handler should take.
type stockConn struct {
	local net.Addr
	limit int
	queue chan stockMessage

	readyOnce sync.Once
	ready     chan struct{} // the stock server reads
	stopOnce  sync.Once
	stop      chan struct{}

	mu sync.Mutex
	// sessions has what an answer needs by the address that the stock server got from us: the same
	// pointer comes back with the answer. An entry goes when nothing refers to the address any more.
	sessions map[weak.Pointer[net.UDPAddr]]*session
	open     recent // sessions without an answer
}

type session struct {
	engine   *engine
	peer     peer
	slot     int64 // in stockConn.open
	answered bool
}

type stockMessage struct {
	data []byte
	to   *net.UDPAddr
	addr net.Addr // to, or what wraps it
}

// stockQueue is how many unusual messages may wait for the stock server's reader.
const stockQueue = 256

// newStockConn makes one of the given number on an address.
func newStockConn(local net.Addr, limit, servers int) *stockConn {
	if limit == 0 {
		limit = defaultMaxInflight
	}
	limit = max(limit/servers, 1)
	return &stockConn{
		local: local, limit: limit,
		queue:    make(chan stockMessage, stockQueue),
		ready:    make(chan struct{}),
		stop:     make(chan struct{}),
		sessions: make(map[weak.Pointer[net.UDPAddr]]*session),
	}
}

// give queues a message for the stock server; false means that there is no room.
func (c *stockConn) give(e *engine, data []byte, from peer, via *proxied) bool {
	to := net.UDPAddrFromAddrPort(from.addr)
	var addr net.Addr = to
	if via != nil {
		to, addr = via.from, via.client
	}
	if !c.open1(e, to, from) {
		return false
	}
	// Stock reads no more than this, whatever the length of the datagram.
	m := stockMessage{data: slices.Clone(data[:min(len(data), dns.MinMsgSize)]), to: to, addr: addr}
	select {
	case c.queue <- m:
		return true
	default:
		c.forget(weak.Make(to))
		return false
	}
}

// open1 opens the session of one message.
func (c *stockConn) open1(e *engine, to *net.UDPAddr, from peer) bool {
	key := weak.Make(to)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &session{engine: e, peer: from, slot: c.open.now()}
	if c.open.total >= c.limit {
		return false
	}
	c.open.add(s.slot)
	c.sessions[key] = s
	runtime.AddCleanup(to, c.forget, key)
	return true
}

// close1 ends the session's share in the bound, once.
func (c *stockConn) close1(s *session) {
	if !s.answered {
		s.answered = true
		c.open.remove(s.slot)
	}
}

func (c *stockConn) forget(key weak.Pointer[net.UDPAddr]) {
	c.mu.Lock()
	if s := c.sessions[key]; s != nil {
		c.close1(s)
		delete(c.sessions, key)
	}
	c.mu.Unlock()
}

// ReadFrom implements net.PacketConn.
func (c *stockConn) ReadFrom(b []byte) (int, net.Addr, error) {
	c.readyOnce.Do(func() { close(c.ready) })
	select {
	case m := <-c.queue:
		n := copy(b, m.data)
		return n, m.addr, nil
	case <-c.stop:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

// WriteTo implements net.PacketConn.
func (c *stockConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	if p, ok := addr.(*cproxyproto.Addr); ok {
		// Only the package that wraps the address can unwrap it.
		return (&cproxyproto.PacketConn{PacketConn: c}).WriteTo(b, p)
	}
	to, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, net.InvalidAddrError("fastudp: not the address of a query")
	}
	c.mu.Lock()
	s := c.sessions[weak.Make(to)]
	if s == nil {
		c.mu.Unlock()
		return 0, net.InvalidAddrError("fastudp: not the address of a query")
	}
	c.close1(s)
	c.mu.Unlock()
	w := response{engine: s.engine}
	w.setPeer(s.peer)
	return w.Write(b)
}

// LocalAddr implements net.PacketConn.
func (c *stockConn) LocalAddr() net.Addr { return c.local }

// SetReadDeadline implements net.PacketConn. The stock server sets one before each read, which need
// not end ours, and the second 1 of 1970 to stop.
func (c *stockConn) SetReadDeadline(t time.Time) error {
	if !t.IsZero() && !t.After(time.Unix(1, 0)) {
		c.stopOnce.Do(func() { close(c.stop) })
	}
	return nil
}

// SetDeadline implements net.PacketConn.
func (c *stockConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline implements net.PacketConn: writes never wait.
func (c *stockConn) SetWriteDeadline(time.Time) error { return nil }

// Close implements net.PacketConn. The sockets stay the listener's.
func (c *stockConn) Close() error {
	c.stopOnce.Do(func() { close(c.stop) })
	return nil
}

// drain returns when the stock server has read what was queued, or at end.
func (c *stockConn) drain(end time.Time) {
	for len(c.queue) > 0 && time.Now().Before(end) {
		time.Sleep(time.Millisecond)
	}
}
