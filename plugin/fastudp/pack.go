package fastudp

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// packMessage packs m into buf, or into a new buffer if it is too long, byte for byte as
// dns.Msg.PackBuffer does. What nearly all answers consist of it writes itself in one pass: the library
// first measures the message and makes a map of its names.
func packMessage(m *dns.Msg, buf []byte) ([]byte, error) {
	p := packers.Get().(*packer)
	p.buf, p.off = buf, 0
	ok := p.message(m)
	data := p.buf[:p.off]
	p.buf = nil
	packers.Put(p)
	if ok {
		return data, nil
	}
	clear(buf) // the library leaves four bytes as they are for an A record with an IPv6 address
	return m.PackBuffer(buf)
}

var packers = sync.Pool{New: func() any { return new(packer) }}

// packer writes a message. Its methods say false for what is left to the library: errors, escapes,
// seldom types, too little room.
type packer struct {
	buf      []byte
	off      int
	compress bool
	// names has where in buf a name or the end of one is, for pointers to it: by hash, the next free
	// place if another has that; 0 is free.
	names [packNames]uint16
	known int
	// Of the name that is being written: where in it labels begin, and the hashes of its ends from there.
	labels [maxName / 2]uint8
	hashes [maxName / 2]uint32
}

const (
	packNames      = 256
	packPointer    = 0xC000
	maxPackPointer = 1 << 14 // RFC 1035 4.1.4
	maxLabel       = 63
)

func (p *packer) message(m *dns.Msg) bool {
	if m.Rcode < 0 || m.Rcode > 0xFFF {
		return false
	}
	// As the library does, which lets a plugin change the code of a message that it has packed before.
	if opt := m.IsEdns0(); opt != nil {
		opt.SetExtendedRcode(uint16(m.Rcode))
	} else if m.Rcode > 0xF {
		return false
	}
	bits := uint16(m.Opcode)<<11 | uint16(m.Rcode&0xF)
	for _, flag := range [...]struct {
		set bool
		bit uint16
	}{
		{m.Response, flagQR}, {m.Authoritative, 1 << 10}, {m.Truncated, 1 << 9}, {m.RecursionDesired, 1 << 8},
		{m.RecursionAvailable, 1 << 7}, {m.Zero, 1 << 6}, {m.AuthenticatedData, 1 << 5}, {m.CheckingDisabled, 1 << 4},
	} {
		if flag.set {
			bits |= flag.bit
		}
	}
	if !p.room(headerSize) {
		return false
	}
	for _, v := range [...]uint16{m.Id, bits, uint16(len(m.Question)), uint16(len(m.Answer)), uint16(len(m.Ns)), uint16(len(m.Extra))} {
		p.uint16(v)
	}
	p.compress = m.Compress && (len(m.Question) > 1 || len(m.Answer)+len(m.Ns)+len(m.Extra) > 0)
	if p.compress {
		clear(p.names[:])
		p.known = 0
	}
	for _, q := range m.Question {
		if !p.name(q.Name, p.compress) || !p.room(4) {
			return false
		}
		p.uint16(q.Qtype)
		p.uint16(q.Qclass)
	}
	for _, section := range [...][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			if !p.record(rr) {
				return false
			}
		}
	}
	return true
}

func (p *packer) record(rr dns.RR) bool {
	if rr == nil {
		return false
	}
	h := rr.Header()
	if !p.name(h.Name, p.compress) || !p.room(10) {
		return false
	}
	p.uint16(h.Rrtype)
	p.uint16(h.Class)
	p.uint32(h.Ttl)
	p.uint16(0)
	begin := p.off
	if !p.data(rr) {
		return false
	}
	binary.BigEndian.PutUint16(p.buf[begin-2:], uint16(p.off-begin)) // buf is shorter than what overflows
	return true
}

// data writes what a record has of its type alone. Only the names of RFC 1035's types are compressed,
// RFC 3597 4.
func (p *packer) data(rr dns.RR) bool {
	switch rr := rr.(type) {
	case *dns.A:
		ip := rr.A.To4()
		return ip != nil && p.bytes(ip)
	case *dns.AAAA:
		return len(rr.AAAA) == net.IPv6len && p.bytes(rr.AAAA)
	case *dns.NS:
		return p.name(rr.Ns, p.compress)
	case *dns.CNAME:
		return p.name(rr.Target, p.compress)
	case *dns.PTR:
		return p.name(rr.Ptr, p.compress)
	case *dns.MX:
		return p.uint16s(rr.Preference) && p.name(rr.Mx, p.compress)
	case *dns.SRV:
		return p.uint16s(rr.Priority, rr.Weight, rr.Port) && p.name(rr.Target, false)
	case *dns.SOA:
		if !p.name(rr.Ns, p.compress) || !p.name(rr.Mbox, p.compress) || !p.room(20) {
			return false
		}
		for _, v := range [...]uint32{rr.Serial, rr.Refresh, rr.Retry, rr.Expire, rr.Minttl} {
			p.uint32(v)
		}
		return true
	case *dns.TXT:
		for _, s := range rr.Txt {
			if len(s) > 255 || strings.Contains(s, `\`) || !p.room(1+len(s)) {
				return false
			}
			p.buf[p.off] = byte(len(s))
			copy(p.buf[p.off+1:], s)
			p.off += 1 + len(s)
		}
		return len(rr.Txt) > 0
	case *dns.DS:
		return p.uint16s(rr.KeyTag, uint16(rr.Algorithm)<<8|uint16(rr.DigestType)) && p.hex(rr.Digest)
	case *dns.RRSIG:
		if !p.uint16s(rr.TypeCovered, uint16(rr.Algorithm)<<8|uint16(rr.Labels)) || !p.room(14) {
			return false
		}
		p.uint32(rr.OrigTtl)
		p.uint32(rr.Expiration)
		p.uint32(rr.Inception)
		p.uint16(rr.KeyTag)
		return p.name(rr.SignerName, false) && p.base64(rr.Signature)
	case *dns.OPT:
		return len(rr.Option) == 0
	}
	return false
}

// name writes a name of ordinary labels. With a message that is compressed it remembers where they are,
// and points to one that is there already if it may.
func (p *packer) name(s string, compress bool) bool {
	if s == "." {
		return p.bytes([]byte{0})
	}
	if len(s) > maxName-1 || !strings.HasSuffix(s, ".") || !p.room(len(s)+1) {
		return false
	}
	n, begin := 0, 0
	for i := range len(s) {
		switch s[i] {
		case '\\':
			return false
		case '.':
			if i == begin || i-begin > maxLabel {
				return false
			}
			p.labels[n] = uint8(begin)
			n++
			begin = i + 1
		}
	}
	// In wire format each label is preceded by its length, in the place of the dot before.
	start, labels := p.off, p.labels[:n]
	copy(p.buf[start+1:], s)
	for k, begin := range labels {
		end := len(s) - 1
		if k+1 < n {
			end = int(labels[k+1]) - 1
		}
		p.buf[start+int(begin)] = byte(end - int(begin))
	}
	p.buf[start+len(s)] = 0
	p.off += len(s) + 1
	if !p.compress {
		return true
	}

	h, k := uint32(2166136261), n-1
	for i := len(s) - 1; i >= 0; i-- {
		h = (h ^ uint32(s[i])) * 16777619 // FNV-1a, backwards
		if i == int(labels[k]) {
			p.hashes[k] = h
			k--
		}
	}
	for k, begin := range labels {
		place, known := p.find(p.hashes[k], s[begin:])
		switch {
		case known && compress:
			at := start + int(begin)
			binary.BigEndian.PutUint16(p.buf[at:], packPointer|p.names[place])
			p.off = at + 2
			return true
		case !known && start+int(begin) < maxPackPointer:
			if p.known++; p.known > packNames/2 {
				return false
			}
			p.names[place] = uint16(start + int(begin))
		}
	}
	return true
}

// find returns the place of name s, or the one that is free for it.
func (p *packer) find(hash uint32, s string) (place uint32, known bool) {
	for place = (hash ^ hash>>16) % packNames; p.names[place] != 0; place = (place + 1) % packNames {
		if p.isAt(int(p.names[place]), s) {
			return place, true
		}
	}
	return place, false
}

// isAt says whether the name that buf has at off is s.
func (p *packer) isAt(off int, s string) bool {
	for {
		n := int(p.buf[off])
		switch {
		case n == 0:
			return s == ""
		case n > maxLabel:
			off = int(binary.BigEndian.Uint16(p.buf[off:])) &^ packPointer
			continue
		case len(s) <= n || s[n] != '.' || string(p.buf[off+1:off+1+n]) != s[:n]:
			return false
		}
		off += 1 + n
		s = s[n+1:]
	}
}

func (p *packer) room(n int) bool { return len(p.buf)-p.off >= n }

func (p *packer) uint16(v uint16) {
	binary.BigEndian.PutUint16(p.buf[p.off:], v)
	p.off += 2
}

func (p *packer) uint32(v uint32) {
	binary.BigEndian.PutUint32(p.buf[p.off:], v)
	p.off += 4
}

func (p *packer) uint16s(vs ...uint16) bool {
	if !p.room(2 * len(vs)) {
		return false
	}
	for _, v := range vs {
		p.uint16(v)
	}
	return true
}

func (p *packer) bytes(b []byte) bool {
	if !p.room(len(b)) {
		return false
	}
	p.off += copy(p.buf[p.off:], b)
	return true
}

func (p *packer) hex(s string) bool {
	if !p.room(len(s)/2 + 1) {
		return false
	}
	n, err := hex.Decode(p.buf[p.off:], []byte(s))
	p.off += n
	return err == nil
}

func (p *packer) base64(s string) bool {
	if !p.room(base64.StdEncoding.DecodedLen(len(s))) {
		return false
	}
	n, err := base64.StdEncoding.Decode(p.buf[p.off:], []byte(s))
	p.off += n
	return err == nil
}
