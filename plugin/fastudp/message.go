package fastudp

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

// message is an ordinary query with all that lives as long as it does, in one allocation.
type message struct {
	dns.Msg
	question [1]dns.Question
	writer   response
}

// messageOPT is one with an OPT record.
type messageOPT struct {
	message
	extra [1]dns.RR
	opt   dns.OPT
}

// unpackMessage unpacks data as dns.Msg.Unpack does. What nearly everybody sends it reads itself.
// A message that makes the library panic, which would end the process, gives an error.
func unpackMessage(data []byte) (m *message, err error) {
	var with *messageOPT
	if len(data) >= headerSize && data[11] > 0 {
		with = new(messageOPT)
		m = &with.message
	} else {
		m = new(message)
	}
	if m.unpackOrdinary(data, with) {
		return m, nil
	}
	m.Msg = dns.Msg{}
	return m, unpack(&m.Msg, data)
}

func unpack(m *dns.Msg, data []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errUnpackPanic
		}
	}()
	return m.Unpack(data)
}

const (
	maxName   = 255 // octets in wire format, RFC 1035 2.3.4
	optHeader = 11  // octets of an OPT record without options, RFC 6891 6.1.2
)

// unpackOrdinary reads a header with one question, whose name needs no escapes, and at most an OPT
// record without options, for which m must be part of with. It says false, leaving m in disorder, for
// anything else.
func (m *message) unpackOrdinary(data []byte, with *messageOPT) bool {
	if len(data) < headerSize {
		return false
	}
	extra := data[11]
	if [7]byte(data[4:11]) != [7]byte{1: 1} || extra > 1 { // counts: one question, no answer, no authority
		return false
	}
	bits := binary.BigEndian.Uint16(data[2:])
	m.Id = binary.BigEndian.Uint16(data)
	m.Response = bits&flagQR != 0
	m.Opcode = int(bits & opcodeMask >> 11)
	m.Authoritative = bits&(1<<10) != 0
	m.Truncated = bits&(1<<9) != 0
	m.RecursionDesired = bits&(1<<8) != 0
	m.RecursionAvailable = bits&(1<<7) != 0
	m.Zero = bits&(1<<6) != 0
	m.AuthenticatedData = bits&(1<<5) != 0
	m.CheckingDisabled = bits&(1<<4) != 0
	m.Rcode = int(bits & 0xF)

	name, rest, ok := plainName(data[headerSize:])
	if !ok || len(rest) < 4 {
		return false
	}
	m.question[0] = dns.Question{Name: name, Qtype: binary.BigEndian.Uint16(rest), Qclass: binary.BigEndian.Uint16(rest[2:])}
	m.Question = m.question[:]
	if extra == 0 {
		return true
	}
	rest = rest[4:]
	if len(rest) < optHeader || rest[0] != 0 || binary.BigEndian.Uint16(rest[1:]) != dns.TypeOPT || binary.BigEndian.Uint16(rest[9:]) != 0 {
		return false
	}
	with.opt.Hdr = dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT, Class: binary.BigEndian.Uint16(rest[3:]), Ttl: binary.BigEndian.Uint32(rest[5:])}
	m.Rcode |= with.opt.ExtendedRcode()
	with.extra[0] = &with.opt
	m.Extra = with.extra[:]
	return true
}

// plainName reads an uncompressed name of printable characters that have no meaning in a zone file.
func plainName(data []byte) (name string, rest []byte, ok bool) {
	var text [maxName]byte
	n := 0
	for {
		if len(data) == 0 {
			return "", nil, false
		}
		length := int(data[0])
		if length == 0 {
			break
		}
		if length > 63 || length >= len(data) || n+length+2 > maxName {
			return "", nil, false
		}
		for i, c := range data[1 : length+1] {
			if !plain[c] {
				return "", nil, false
			}
			text[n+i] = c
		}
		n += length + 1
		text[n-1] = '.'
		data = data[length+1:]
	}
	if n == 0 {
		return ".", data[1:], true
	}
	return string(text[:n]), data[1:], true
}

// plain has the characters that a name shows as they are.
var plain = func() (is [256]bool) {
	for c := '!'; c <= '~'; c++ {
		is[c] = true
	}
	for _, c := range []byte(`.'@;()"\`) {
		is[c] = false
	}
	return is
}()
