package fastudp

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/coredns/coredns/core/dnsserver"

	"github.com/miekg/dns"
)

// listener is the UDP side of one server: its sockets with their engines, and the connection to the
// embedded stock server. It is the net.PacketConn that caddy holds.
type listener struct {
	addr       string // dns://host:port, by which a reload finds its predecessor
	local      net.Addr
	opts       Options
	handler    handler
	ctx        context.Context
	tsigSecret map[string]string
	decorate   dns.DecorateWriter
	proxy      *proxyStripper
	stock      *stockConn
	engines    []*engine
	quick      quick

	steering    steering
	firstSocket int // the number of engines[0]'s socket among those of the address

	mu       sync.Mutex
	serving  bool
	growth   int  // GCGrowth in force when serving began
	paced    bool // it is ours to say
	closed   bool
	shared   []bool    // engines[i]'s socket is its successor's too
	lent     bool      // engines[0]'s socket is one that caddy had from a predecessor and keeps
	filed    bool      // caddy has asked for a descriptor of it
	heirs    []*server // servers of the instance that replaces ours
	started  chan struct{}
	finished chan struct{}
}

// handler is what a *dnsserver.Server is to a query.
type handler interface {
	ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg)
}

// newListener makes the listener of s from open sockets, which it owns from then on even if it fails.
// If the first is lent by caddy it is too late to refuse, and it serves even if others can not.
func newListener(s *dnsserver.Server, a *address, conns []*net.UDPConn, lent bool) (*listener, error) {
	l := &listener{
		lent: lent,
		addr: s.Addr, local: conns[0].LocalAddr(), opts: a.opts,
		handler: s, tsigSecret: a.tsig,
		ctx:      context.WithValue(context.WithValue(context.Background(), dnsserver.Key{}, s), dnsserver.LoopKey{}, 0),
		proxy:    newProxyStripper(a.proxy, conns[0].LocalAddr()),
		stock:    newStockConn(conns[0].LocalAddr(), a.opts.MaxInflight, a.servers),
		shared:   make([]bool, len(conns)),
		started:  make(chan struct{}),
		finished: make(chan struct{}),
	}
	pktinfo := needsPktinfo(hostPort(s.Addr))
	for i, c := range conns {
		e, err := l.newEngine(c, a, pktinfo)
		if err != nil && lent && i > 0 {
			log.Errorf("%s: serving without socket %d of %d: %v", s.Addr, i+1, len(conns), err)
			c.Close()
			continue
		}
		if err != nil {
			closeAll(conns[i:])
			l.closeSockets()
			return nil, fmt.Errorf("%s: socket %d of %d: %w", s.Addr, i+1, len(conns), err)
		}
		l.engines = append(l.engines, e)
	}
	return l, nil
}

func (l *listener) newEngine(c *net.UDPConn, a *address, pktinfo bool) (*engine, error) {
	if pktinfo {
		if err := setPktinfo(c); err != nil {
			return nil, err
		}
	}
	packets := newPackets(l.opts.Batch)
	count := new(counters)
	io, err := openIO(c, pktinfo, l.opts, packets, count)
	if err != nil {
		return nil, err
	}
	e := newEngine(io, l.opts, a.budget, packets, count, l.serve)
	e.listener = l
	return e, nil
}

// openIO is newIO; a test replaces it.
var openIO = newIO

// serveAll starts the engines and returns when the listener has been stopped.
func (l *listener) serveAll(stock func(net.PacketConn) error, decorate func() dns.DecorateWriter) error {
	l.mu.Lock()
	if l.closed || l.serving {
		l.mu.Unlock()
		return nil
	}
	l.serving = true
	failed := make(chan error, 1)
	go func() { failed <- stock(l.stock) }()
	select {
	case <-l.stock.ready:
	case err := <-failed:
		l.mu.Unlock()
		return err
	}
	l.decorate = decorate()
	live.add(l)
	l.growth, l.paced = pace.ask(l, l.opts.GCGrowth)
	for _, e := range l.engines {
		e.start()
	}
	period := watchPeriod
	close(l.started)
	log.Infof("%s: %s", l.name(), l.summary())
	l.mu.Unlock()
	go l.watch(period)
	<-l.finished
	return nil
}

// drainLimit is how long a stopping listener goes on reading what the kernel has queued.
const drainLimit = time.Second

// flushLimit is how long the last responses may wait for room in the kernel's send buffer.
const flushLimit = 100 * time.Millisecond

// stopReading has all sockets drained and hands the last unusual messages to the stock server. A
// reader that waits for room in the send buffer does not hold it up.
func (l *listener) stopReading() {
	select {
	case <-l.started:
	case <-time.After(startLimit):
	}
	l.mu.Lock()
	serving, shared := l.serving, slices.Clone(l.shared)
	l.closed = true
	l.mu.Unlock()
	if !serving {
		return
	}
	kept := l.handedOn()
	end := time.Now().Add(drainLimit)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	for i, e := range l.engines {
		switch {
		case shared[i]:
			e.stopReading(0)
		case i == 0 && kept:
			e.stopReading(drainLimit) // a successor may read it too: it must not be detached
		default:
			e.io.detach()
			e.stopReading(drainLimit)
		}
	}
	for _, e := range l.engines {
		select {
		case <-e.readDone:
		case <-ctx.Done():
		}
		e.dismiss()
	}
	l.stock.drain(end)
}

// wait returns when no handler is left or ctx ends.
func (l *listener) wait(ctx context.Context) error {
	l.mu.Lock()
	serving := l.serving
	l.mu.Unlock()
	if !serving {
		return nil
	}
	for _, e := range l.engines {
		select {
		case <-e.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		e.out.wait(ctx)
	}
	return nil
}

// Close implements net.PacketConn. The answers of handlers that still run find no socket.
func (l *listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	select {
	case <-l.finished:
		return nil
	default:
	}
	end := time.Now().Add(flushLimit)
	for _, e := range l.engines {
		e.io.conn().SetWriteDeadline(end)
		e.out.flush()
		e.out.close()
	}
	live.remove(l) // before: nobody shall read counters of closed sockets
	pace.withdraw(l)
	l.closeSockets()
	close(l.finished)
	return nil
}

func (l *listener) closeSockets() {
	for _, e := range l.engines {
		e.io.close()
	}
}

// hidden is a listener without its File method. A stock successor would not take PROXY headers off a
// socket that caddy hands over, only off one that it opens itself.
type hidden struct {
	net.PacketConn
	listener *listener
}

// File gives caddy a descriptor of the first socket, for the successor in a reload or an upgrade.
func (l *listener) File() (*os.File, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.filed = true
	return l.engines[0].io.conn().File()
}

// caddyHas says whether caddy hands the first socket over to a successor.
func (l *listener) caddyHas() bool { return l.lent || l.proxy == nil }

// LocalAddr implements net.PacketConn.
func (l *listener) LocalAddr() net.Addr { return l.local }

// ReadFrom implements net.PacketConn, for nobody: the engines read.
func (l *listener) ReadFrom([]byte) (int, net.Addr, error) { return 0, nil, errNoPacket }

// WriteTo implements net.PacketConn, for nobody: answers go out by their query's socket.
func (l *listener) WriteTo([]byte, net.Addr) (int, error) { return 0, errNoPacket }

// SetDeadline implements net.PacketConn.
func (l *listener) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.PacketConn.
func (l *listener) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.PacketConn.
func (l *listener) SetWriteDeadline(time.Time) error { return nil }

// summary says with what l serves.
func (l *listener) summary() string {
	sockets := "1 socket"
	if n := len(l.engines); n > 1 {
		sockets = fmt.Sprintf("%d sockets", n)
	}
	if all := l.steering.sockets; all > len(l.engines) {
		sockets += fmt.Sprintf(" of %d on the address", all)
	}
	steer := string(l.opts.Steer)
	if now := l.steering.inForce(); now != l.opts.Steer {
		why := "not to be had"
		if l.steering.shared {
			why = "another process has sockets on the address"
		}
		steer = fmt.Sprintf("%s instead of %s (%s)", now, l.opts.Steer, why)
	}
	bound := "no max_inflight"
	if l.opts.MaxInflight > 0 {
		bound = fmt.Sprintf("max_inflight %d for the address", l.opts.MaxInflight)
	}
	growth := fmt.Sprintf("gc_growth %d bytes", l.growth)
	switch asked := l.opts.GCGrowth; {
	case asked == 0:
		growth = "no gc_growth"
	case !l.paced:
		growth = "no gc_growth (GOGC or debug.SetGCPercent is set)"
	case l.growth < asked:
		growth += fmt.Sprintf(" instead of %d (another listener's)", asked)
	}
	return fmt.Sprintf("%s, batch %d, fairness cap %d, read buffer %s, write buffer %s, steer %s, %s, %s",
		sockets, l.batch(), l.opts.FairnessCap, l.buffer(readBuffer), l.buffer(writeBuffer), steer, bound, growth)
}

// batch is how many messages one system call takes.
func (l *listener) batch() int {
	if !severalSockets {
		return 1
	}
	return l.opts.Batch
}

// buffer says what was asked and what the system granted.
func (l *listener) buffer(k bufferKind) string {
	asked := l.opts.buffers().size(k)
	got, ok := bufferSize(l.engines[0].io.conn(), k)
	switch {
	case asked == 0 && !ok:
		return "as the system has it"
	case asked == 0:
		return fmt.Sprintf("%d bytes (the system's default)", got)
	case !ok:
		return fmt.Sprintf("%d bytes asked", asked)
	case got < asked:
		return fmt.Sprintf("%d bytes of %d asked (%s)", got, asked, k.limit())
	}
	if k == readBuffer && l.opts.ReadBuffer == 0 {
		return fmt.Sprintf("%d bytes", got)
	}
	return fmt.Sprintf("%d bytes as asked", got)
}

// name is the listener's server label: the address of its server block, with the real port for port 0.
func (l *listener) name() string {
	return "dns://" + samePort(hostPort(l.addr), l.engines[0].io.conn())
}
