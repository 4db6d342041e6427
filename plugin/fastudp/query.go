package fastudp

import (
	"encoding/binary"
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
	data, via, ok := p.data, (*proxied)(nil), true
	if l.proxy != nil {
		if data, via, ok = l.proxy.strip(data, p.peer); !ok {
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
		l.unusual(e, p, data, via, unusualLong)
	case bits&opcodeMask != dns.OpcodeQuery<<11:
		l.unusual(e, p, data, via, unusualOpcode)
	case !ordinaryCounts(data):
		l.unusual(e, p, data, via, unusualCounts)
	default:
		l.query(e, p, data, via)
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
func (l *listener) query(e *engine, p *packet, data []byte, via *proxied) {
	at := e.admit()
	if at != own || e.filling() {
		l.queryFull(e, p, data, via, at)
		return
	}
	l.handle(e, p, data, via)
	e.release(at)
}

// queryFull handles one while many others wait: questions that are answered at once are remembered, and
// let in when there is no place for others.
func (l *listener) queryFull(e *engine, p *packet, data []byte, via *proxied, at place) {
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
	if l.handle(e, p, data, via) && time.Since(begin) < limit {
		l.quick.remember(key)
	}
	e.release(at)
}

// handle has the plugins answer, or the stock server if it is no ordinary query after all: then it says false.
func (l *listener) handle(e *engine, p *packet, data []byte, via *proxied) bool {
	m, err := unpackMessage(data)
	if err != nil || m.IsTsig() != nil {
		why := unusualTSIG
		if err != nil {
			why = unusualMalformed
		}
		l.unusual(e, p, data, via, why)
		return false
	}
	w := &m.writer
	w.engine = e
	w.setPeer(p.peer)
	e.took() // nothing of m points into p
	if via != nil {
		w.seldom().proxy = via.client
	}
	if l.decorate != nil {
		w.seldom().writer = l.decorate(w)
	}
	l.handler.ServeDNS(l.ctx, w, &m.Msg)
	return true
}

// unusual gives a message to the embedded stock server, so that its answer is stock's by construction.
func (l *listener) unusual(e *engine, p *packet, data []byte, via *proxied, why unusual) {
	if unpack(new(dns.Msg), data[:min(len(data), dns.MinMsgSize)]) == errUnpackPanic {
		// The stock server would unpack it, and die.
		e.count.drops[dropPanic].Add(1)
		e.took()
		return
	}
	if l.stock.give(e, data, p.peer, via) {
		e.count.unusual[why].Add(1)
	} else {
		e.count.drops[dropUnusual].Add(1)
	}
	e.took()
}
