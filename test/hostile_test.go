package test

import (
	"testing"
	"time"

	"github.com/miekg/dns"
)

// A bomb is a record whose parser panics, for want of a packet that makes the DNS library's own do so.
const typeBomb = 0xFF42

type bomb struct{}

func (bomb) String() string              { return "" }
func (bomb) Parse([]string) error        { return nil }
func (bomb) Pack([]byte) (int, error)    { return 0, nil }
func (bomb) Unpack([]byte) (int, error)  { panic("bomb") }
func (bomb) Copy(dns.PrivateRdata) error { return nil }
func (bomb) Len() int                    { return 0 }
func init()                              { dns.PrivateHandle("BOMB", typeBomb, func() dns.PrivateRdata { return bomb{} }) }
func withBomb(m *dns.Msg) (packed []byte) {
	m.Extra = append([]dns.RR{&dns.RFC3597{Hdr: dns.RR_Header{Name: "x.", Rrtype: typeBomb, Class: dns.ClassINET}, Rdata: "00"}}, m.Extra...)
	packed, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return packed
}

// TestParserPanics sends messages that make the parser panic, on the ordinary path and on the stock one.
func TestParserPanics(t *testing.T) {
	inst := start(t, ".:0 {\n bind 127.0.0.1\n fastudp 1\n whoami\n}\n")
	addr := udpAddrs(inst)[0]
	signed := new(dns.Msg).SetQuestion("a.test.", dns.TypeA)
	signed.SetTsig("key.", dns.HmacSHA256, 300, time.Now().Unix())
	messages := [][]byte{
		withBomb(new(dns.Msg).SetQuestion("a.test.", dns.TypeA)),
		withBomb(signed),
		withBomb(new(dns.Msg).SetNotify("test.")),
	}
	c := dial(t, addr)
	for _, m := range messages {
		if a := roundTrip(t, c, m, 50*time.Millisecond); a != nil {
			t.Errorf("%x has the answer %x", m, a)
		}
	}
	ask(t, "udp", addr, "a.test.")
	if n := total(series(t, "dropped_total", addr)); n != 3 {
		t.Errorf("%v messages are counted as dropped, want 3", n)
	}
}
