package fastudp

import (
	"encoding/binary"
	"net"
	"time"

	"github.com/miekg/dns"
)

const (
	headerSize = 12
	flagQR     = 1 << 15
	opcodeMask = 0xF << 11
)

// serve answers packet p of e's batch, on the goroutine of the worker that claimed it.
func (l *listener) serve(e *engine, p *packet) {
	data, proxied, ok := p.data, net.Addr(nil), true
	if l.proxy != nil {
		if data, proxied, ok = l.proxy.strip(data, p.peer); !ok {
			e.count.drops[dropProxy].Add(1)
			e.took()
			return
		}
	}
	if len(data) < headerSize {
		e.count.drops[dropShort].Add(1)
		e.took()
		return
	}
	bits := binary.BigEndian.Uint16(data[2:])
	if bits&flagQR != 0 {
		e.count.drops[dropResponse].Add(1)
		e.took()
		return
	}
	switch {
	case p.long:
		l.unusual(e, p, data, proxied, unusualLong)
	case bits&opcodeMask != dns.OpcodeQuery<<11:
		l.unusual(e, p, data, proxied, unusualOpcode)
	case !ordinaryCounts(data):
		l.unusual(e, p, data, proxied, unusualCounts)
	default:
		l.query(e, p, data, proxied)
	}
}

// ordinaryCounts says whether dns.DefaultMsgAcceptFunc lets the header's record counts pass.
func ordinaryCounts(h []byte) bool {
	return binary.BigEndian.Uint16(h[4:]) == 1 &&
		binary.BigEndian.Uint16(h[6:]) <= 1 &&
		binary.BigEndian.Uint16(h[8:]) <= 1 &&
		binary.BigEndian.Uint16(h[10:]) <= 2
}

// query handles an ordinary query.
func (l *listener) query(e *engine, p *packet, data []byte, proxied net.Addr) {
	at := e.admit()
	if at != own || e.filling() {
		l.queryFull(e, p, data, proxied, at)
		return
	}
	l.handle(e, p, data, proxied)
	e.release(at)
}

// queryFull handles one while many others wait: questions that are answered at once are remembered, and
// let in when there is no place for others.
func (l *listener) queryFull(e *engine, p *packet, data []byte, proxied net.Addr, at place) {
	key, limit := questionKey(data), quickLimit
	if at == nowhere && l.quick.recall(key) {
		if at, limit = e.admitExtra(), extraLimit; at == nowhere {
			l.quick.remember(key) // it was not its fault
		}
	}
	if at == nowhere {
		e.count.drops[dropInflight].Add(1)
		e.took()
		return
	}
	begin := time.Now()
	if l.handle(e, p, data, proxied) && time.Since(begin) < limit {
		l.quick.remember(key)
	}
	e.release(at)
}

// handle has the plugins answer, or the stock server if it is no ordinary query after all: then it says false.
func (l *listener) handle(e *engine, p *packet, data []byte, proxied net.Addr) bool {
	m, err := unpackMessage(data)
	if err != nil || m.IsTsig() != nil {
		why := unusualTSIG
		if err != nil {
			why = unusualMalformed
		}
		l.unusual(e, p, data, proxied, why)
		return false
	}
	w := &m.writer
	w.engine, w.server = e, l
	w.setPeer(p.peer)
	e.took() // nothing of m points into p
	if proxied != nil {
		w.seldom().proxy = proxied
	}
	if l.decorate != nil {
		w.seldom().writer = l.decorate(w)
	}
	l.handler.ServeDNS(l.ctx, w, &m.Msg)
	return true
}

// unusual gives a message to the embedded stock server, so that its answer is stock's by construction.
func (l *listener) unusual(e *engine, p *packet, data []byte, proxied net.Addr, why unusual) {
	if unpack(new(dns.Msg), data[:min(len(data), dns.MinMsgSize)]) == errUnpackPanic {
		// The stock server would unpack it, and die.
		e.count.drops[dropPanic].Add(1)
		e.took()
		return
	}
	if l.stock.give(e, data, p.peer, proxied) {
		e.count.unusual[why].Add(1)
	} else {
		e.count.drops[dropUnusual].Add(1)
	}
	e.took()
}
