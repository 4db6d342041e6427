package fastudp

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"

	"github.com/miekg/dns"
)

// The longest UDP payloads: 65535 bytes less the IPv4 and UDP headers, or less the UDP header alone
// for IPv6, whose length field does not count its own header (RFC 768, RFC 8200).
const (
	maxPayload4 = 65507
	maxPayload6 = 65527
)

// response is the dns.ResponseWriter of one ordinary query. Plugins may keep it and its addresses
// after the handler has returned, so it is never reused. It lies in its message.
type response struct {
	engine *engine
	remote net.UDPAddr // whom to answer
	ip     [16]byte    // that remote.IP points to
	local  *netip.Addr // as in peer, nil where that is none
	rare   *rare       // nil for most
}

// rare is what few responses have: the collector's work goes by the bytes of each.
type rare struct {
	proxy  net.Addr   // what a PROXY header said, or nil
	writer dns.Writer // what a plugin has put before us, or nil
	mac    string
	timers bool
	closed bool
}

func (w *response) setPeer(p peer) {
	if p.local.IsValid() {
		w.local = w.engine.keep(p.local)
	}
	a := p.addr.Addr()
	if a.Is4() {
		b := a.As4()
		w.remote.IP = append(w.ip[:0:16], b[:]...)
	} else {
		w.ip = a.As16()
		w.remote.IP = w.ip[:]
		w.remote.Zone = a.Zone()
	}
	w.remote.Port = int(p.addr.Port())
}

func (w *response) peer() peer {
	p := peer{addr: w.remote.AddrPort()}
	if w.local != nil {
		p.local = *w.local
	}
	return p
}

func (w *response) closed() bool { return w.rare != nil && w.rare.closed }

// seldom is w.rare, made when it is needed.
func (w *response) seldom() *rare {
	if w.rare == nil {
		w.rare = new(rare)
	}
	return w.rare
}

// LocalAddr implements dns.ResponseWriter.
func (w *response) LocalAddr() net.Addr { return w.engine.listener.local }

// RemoteAddr implements dns.ResponseWriter.
func (w *response) RemoteAddr() net.Addr {
	if r := w.rare; r != nil && r.proxy != nil {
		return r.proxy
	}
	return &w.remote
}

// decorator is what stands between us and the bytes, or nil.
func (w *response) decorator() dns.Writer {
	if w.rare == nil {
		return nil
	}
	return w.rare.writer
}

// WriteMsg implements dns.ResponseWriter.
func (w *response) WriteMsg(m *dns.Msg) error {
	if w.closed() {
		return errors.New("fastudp: WriteMsg called after Close")
	}
	if t := m.IsTsig(); t != nil {
		return w.writeTsig(m, t)
	}
	if d := w.decorator(); d != nil {
		// A decorator may keep the bytes: they are its own.
		data, err := m.Pack()
		if err != nil {
			return err
		}
		_, err = d.Write(data)
		return err
	}
	r := newReply()
	data, err := packMessage(m, r.buf[:cap(r.buf)])
	if err != nil {
		r.free()
		return err
	}
	r.buf = data
	return w.send(r)
}

// writeTsig signs m: a plugin may sign an answer to a query that was not signed.
func (w *response) writeTsig(m *dns.Msg, t *dns.TSIG) error {
	secret, known := w.engine.listener.tsigSecret[t.Hdr.Name]
	// An answer that says that the key or the signature was bad is not signed, RFC 8945 5.3.2.
	signs := t.Error != dns.RcodeBadKey && t.Error != dns.RcodeBadSig
	// Without a secret too, because that is when stock finds that there is none: the message has been
	// packed, and has lost its TSIG record.
	r := w.seldom()
	data, mac, err := dns.TsigGenerate(m, secret, r.mac, r.timers)
	if signs && !known && (err == nil || err == dns.ErrKeyAlg) {
		mac, err = "", dns.ErrSecret
	}
	r.mac = mac
	if err != nil {
		return err
	}
	if r.writer != nil {
		_, err = r.writer.Write(data)
	} else {
		_, err = w.Write(data)
	}
	return err
}

// Write implements dns.ResponseWriter.
func (w *response) Write(b []byte) (int, error) {
	if w.closed() {
		return 0, errors.New("fastudp: Write called after Close")
	}
	r := newReply()
	r.buf = append(r.buf[:0], b...)
	if err := w.send(r); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (w *response) send(r *reply) error {
	r.peer = w.peer()
	limit := maxPayload4
	if r.peer.addr.Addr().Is6() {
		limit = maxPayload6
	}
	if len(r.buf) > limit {
		r.free()
		return errTooLong
	}
	return w.engine.out.add(r)
}

// Close implements dns.ResponseWriter. The socket is the listener's, so it stays open.
func (w *response) Close() error {
	if w.closed() {
		return errors.New("fastudp: connection already closed")
	}
	w.seldom().closed = true
	return nil
}

// TsigStatus implements dns.ResponseWriter: signed queries do not come this way.
func (w *response) TsigStatus() error { return nil }

// TsigTimersOnly implements dns.ResponseWriter.
func (w *response) TsigTimersOnly(b bool) {
	if b || w.rare != nil {
		w.seldom().timers = b
	}
}

// ConnectionState implements dns.ConnectionStater, as stock's writer does for UDP too.
func (w *response) ConnectionState() *tls.ConnectionState { return nil }

// Hijack implements dns.ResponseWriter. There is no connection to take over.
func (w *response) Hijack() {}
