package fastudp

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net"
	"strings"

	"github.com/miekg/dns"
)

// packMessage packs m into buf, or into a new buffer if it is too long, byte for byte as
// dns.Msg.PackBuffer does. What nearly all answers consist of it writes itself in one pass: the library
// first measures the message and makes a map of its names.
func packMessage(m *dns.Msg, buf []byte) ([]byte, error) {
	p := packer{buf: buf}
	ok := p.message(m)
	if p.names != nil {
		nameTables.Put(p.names)
	}
	if ok {
		return buf[:p.off], nil
	}
	clear(buf) // the library leaves four bytes as they are for an A record with an IPv6 address
	return m.PackBuffer(buf)
}

// packer writes a message. Its methods say false for what is left to the library: errors, escapes,
// seldom types, too little room.
type packer struct {
	buf      []byte
	off      int
	compress bool
	asked    string     // the first question's name, which follows the header and which most records have, or empty
	names    *nameTable // made when another name may be compressed
}

const (
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
	bits |= bit(m.Response)<<15 | bit(m.Authoritative)<<10 | bit(m.Truncated)<<9 | bit(m.RecursionDesired)<<8 |
		bit(m.RecursionAvailable)<<7 | bit(m.Zero)<<6 | bit(m.AuthenticatedData)<<5 | bit(m.CheckingDisabled)<<4
	if !p.room(headerSize) {
		return false
	}
	for _, v := range [...]uint16{m.Id, bits, uint16(len(m.Question)), uint16(len(m.Answer)), uint16(len(m.Ns)), uint16(len(m.Extra))} {
		p.uint16(v)
	}
	p.compress = m.Compress && (len(m.Question) > 1 || len(m.Answer)+len(m.Ns)+len(m.Extra) > 0)
	for i, q := range m.Question {
		if i == 0 && q.Name != "." {
			if !p.write(q.Name) {
				return false
			}
			p.asked = q.Name
		} else if !p.name(q.Name, p.compress) {
			return false
		}
		if !p.room(4) {
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

func bit(set bool) uint16 {
	if set {
		return 1
	}
	return 0
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

// name writes a name. With a message that is compressed it points to one that is there already if it may.
func (p *packer) name(s string, compress bool) bool {
	switch {
	case s == ".":
		return p.bytes([]byte{0})
	case s == "" || s != p.asked:
		start := p.off
		return p.write(s) && (!p.compress || p.point(s, start, compress))
	case p.compress && compress:
		return p.uint16s(packPointer | headerSize)
	default:
		return p.bytes(p.buf[headerSize:][:len(s)+1])
	}
}

// write writes a name of ordinary labels in full.
func (p *packer) write(s string) bool {
	if len(s) == 0 || len(s) > maxName-1 || !p.room(len(s)+1) {
		return false
	}
	// In wire format each label is preceded by its length, in the place of the dot before.
	to := p.buf[p.off:][:len(s)+1]
	copy(to[1:], s)
	begin := 0
	for i := range len(s) {
		switch s[i] {
		case '\\':
			return false
		case '.':
			if i == begin || i-begin > maxLabel {
				return false
			}
			to[begin] = byte(i - begin)
			begin = i + 1
		}
	}
	to[len(s)] = 0
	p.off += len(s) + 1
	return begin == len(s)
}

// point remembers name s, which has just been written at start, and if it may be compressed has its end
// point to where that is already.
func (p *packer) point(s string, start int, compress bool) bool {
	if p.names == nil {
		p.names = nameTables.Get().(*nameTable)
		p.names.reset()
		if p.asked != "" { // else what follows the header is another name
			p.names.add(p.buf, p.asked, headerSize, false)
		}
	}
	begin, to, ok := p.names.add(p.buf, s, start, compress)
	if to > 0 {
		binary.BigEndian.PutUint16(p.buf[start+begin:], uint16(packPointer|to))
		p.off = start + begin + 2
	}
	return ok
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
