package fastudp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// checkPack compares with what stock sends, over a buffer that is not empty.
func checkPack(t testing.TB, m *dns.Msg, size int) (ordinary bool) {
	t.Helper()
	buf := bytes.Repeat([]byte{0xA5}, size)
	want, wantErr := m.Pack()
	got, err := packMessage(m, bytes.Clone(buf))
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("error %v, the library's %v\n%v", err, wantErr, m)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%x\nthe library:\n%x\n%v", got, want, m)
	}
	return (&packer{buf: buf}).message(m)
}

// answer is a response with these records as answers, authority and additional ones.
func answer(t testing.TB, name string, sections ...string) *dns.Msg {
	t.Helper()
	m := new(dns.Msg).SetQuestion(name, dns.TypeA)
	m.Response, m.Authoritative, m.RecursionAvailable, m.AuthenticatedData = true, true, true, true
	for i, to := range []*[]dns.RR{&m.Answer, &m.Ns, &m.Extra} {
		if i == len(sections) {
			break
		}
		for line := range strings.Lines(sections[i]) {
			rr, err := dns.NewRR(line)
			if err != nil {
				t.Fatal(err)
			}
			if rr != nil {
				*to = append(*to, rr)
			}
		}
	}
	return m
}

const signature = "oJB1W6WNGv+ldvQ3WDG0MQkg5IEhjRip8WTrPYGv07h108dUKGMeDPKijVCHX3DDKdfb+v6oB9wfuh3DTJXUAfI/M0zmO/zz8bW0Rznl8O3tGNazPwQKkRN20XPXV6nwwfoXmJQbsLNrLfkGJ5D6fwFm8nN+6pBzeDQfsS3Ap3o="

func ordinaryAnswers(t testing.TB) map[string]*dns.Msg {
	all := map[string]*dns.Msg{
		"none":    answer(t, "example.org."),
		"root":    answer(t, ".", ". 60 IN NS a.root.\n. 60 IN NS b.root."),
		"address": answer(t, "example.org.", "example.org. 60 IN A 192.0.2.1\nexample.org. 60 IN AAAA 2001:db8::1"),
		"chain":   answer(t, "a.b.example.org.", "a.b.example.org. 60 IN CNAME c.b.example.org.\nc.b.example.org. 60 IN CNAME x.example.com.\nx.example.com. 60 IN A 192.0.2.1"),
		"delegation": answer(t, "www.x.example.", "", "x.example. 60 IN NS ns1.x.example.\nx.example. 60 IN NS ns2.x.example.\nx.example. 60 IN NS Ns2.Y.example.",
			"ns1.x.example. 60 IN A 192.0.2.1\nns2.x.example. 60 IN AAAA 2001:db8::1"),
		"negative": answer(t, "no.example.org.", "", "example.org. 60 IN SOA ns.example.org. host.example.org. 1 2 3 4 5"),
		"mail":     answer(t, "example.org.", "example.org. 60 IN MX 10 mail.example.org.\nexample.org. 60 IN TXT \"a\" \"bc d\"\n_x._udp.example.org. 60 IN SRV 1 2 3 mail.example.org.\nmail.example.org. 60 IN SRV 1 2 3 new.name.\nz.new.name. 60 IN PTR new.name."),
		"signed": answer(t, "example.org.", "example.org. 60 IN DS 1 8 2 E2D3C916F6DEEAC73294E8268FB5885044A833FC5459588F4A9184CFC41A5766\n"+
			"example.org. 60 IN RRSIG DS 8 2 60 20300101000000 20200101000000 4711 org. "+signature, "sub.org. 60 IN NS ns.org."),
		"repeated labels": answer(t, "a.a.a.", "a.a.a. 60 IN NS a.a.\na.a. 60 IN NS a.\na. 60 IN NS a.a.a.a."),
	}
	withOPT := answer(t, "example.org.", "example.org. 60 IN A 192.0.2.1")
	withOPT.SetEdns0(1232, true)
	withOPT.Rcode = dns.RcodeBadVers
	all["extended code"] = withOPT
	mapped := answer(t, "example.org.", "example.org. 60 IN A 192.0.2.1")
	mapped.Answer[0].(*dns.A).A = net.IPv4(192, 0, 2, 9)
	all["IPv4 in 16 bytes"] = mapped
	all["target asked for"] = answer(t, "example.org.", "example.org. 60 IN SRV 1 2 3 example.org.\norg. 60 IN NS example.org.\nexample.org. 60 IN CNAME example.org.")
	all["other case"] = answer(t, "example.org.", "Example.org. 60 IN A 192.0.2.1\nexample.org. 60 IN A 192.0.2.1")
	two := answer(t, "example.org.")
	two.Question = append(two.Question, dns.Question{Name: "www.example.org.", Qtype: 1, Qclass: 1})
	all["two questions"] = two
	many := new(strings.Builder)
	for i := range 20 {
		fmt.Fprintf(many, "example.org. 60 IN NS ns%d.example.org.\nns%d.net. 60 IN NS x%d.sub.ns%d.net.\n", i, i, i, i)
	}
	all["many names"] = answer(t, "example.org.", many.String())
	return all
}

func TestPack(t *testing.T) {
	for name, m := range ordinaryAnswers(t) {
		for _, compress := range []bool{false, true} {
			m.Compress = compress
			if !checkPack(t, m, replySize) {
				t.Errorf("%s, compress %v: left to the library", name, compress)
			}
			for size := range 200 { // a buffer that is too short
				checkPack(t, m, size)
			}
		}
	}
}

// TestPackNoQuestion packs what has records but no question: after the header comes a record's name, whatever its hash.
func TestPackNoQuestion(t *testing.T) {
	for i := range 1000 {
		name := fmt.Sprintf("n%d.example.", i)
		m := answer(t, name, name+" 60 IN NS a."+name)
		m.Question, m.Compress = nil, true
		if !checkPack(t, m, replySize) {
			t.Errorf("%s: left to the library", name)
		}
	}
}

// TestPackOther leaves to the library what it does not know, errors too.
func TestPackOther(t *testing.T) {
	other := map[string]*dns.Msg{
		"escape":        answer(t, `a\.b.example.org.`, `a\.b.example.org. 60 IN A 192.0.2.1`),
		"escape in TXT": answer(t, "example.org.", `example.org. 60 IN TXT "a\"b"`),
		"type":          answer(t, "example.org.", "example.org. 60 IN NSEC a.example.org. A NS"),
		"not qualified": answer(t, "example.org"),
		"no name":       answer(t, ""),
		"two dots":      answer(t, "example..org."),
		"leading dot":   answer(t, ".org."),
		"long label":    answer(t, strings.Repeat("a", 64)+".org."),
		"long name":     answer(t, strings.Repeat("abc.", 70)),
		"bad hex":       answer(t, "org.", "org. 60 IN DS 1 8 2 00"),
		"bad base64":    answer(t, "org.", "org. 60 IN RRSIG A 8 2 60 20300101000000 20200101000000 1 org. AAAA"),
		"no address":    answer(t, "org.", "org. 60 IN A 192.0.2.1"),
		"IPv6 in A":     answer(t, "org.", "org. 60 IN A 192.0.2.1"),
		"empty TXT":     answer(t, "org.", "org. 60 IN TXT a"),
		"nil":           answer(t, "org."),
		"code":          answer(t, "org."),
		"extended code": answer(t, "org."),
		"option":        answer(t, "org."),
	}
	for _, question := range []string{"none", "."} {
		for _, name := range []string{"", "."} { // a record's own, and one in its data
			m := answer(t, ".", ". 60 IN SRV 1 2 3 .")
			m.Answer[0].(*dns.SRV).Target, m.Answer[0].(*dns.SRV).Hdr.Name = "", name
			if question == "none" {
				m.Question = nil
			}
			other[fmt.Sprintf("no name in %q, question %s", name, question)] = m
		}
	}
	other["bad hex"].Answer[0].(*dns.DS).Digest = "0x"
	other["bad base64"].Answer[0].(*dns.RRSIG).Signature = "=="
	other["no address"].Answer[0].(*dns.A).A = nil
	other["IPv6 in A"].Answer[0].(*dns.A).A = net.IPv6loopback
	other["empty TXT"].Answer[0].(*dns.TXT).Txt = nil
	other["nil"].Answer = []dns.RR{nil}
	other["code"].Rcode = -1
	other["extended code"].Rcode = 16
	other["option"].SetEdns0(1232, false).IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_NSID{Code: dns.EDNS0NSID, Nsid: "61"}}
	many := new(strings.Builder)
	for i := range 200 {
		fmt.Fprintf(many, "n%d.a%d. 60 IN A 192.0.2.1\n", i, i)
	}
	other["too many names"] = answer(t, "org.", many.String())
	other["too many names"].Compress = true
	for name, m := range other {
		if checkPack(t, m, 16<<10) {
			t.Errorf("%s: not left to the library", name)
		}
	}
}

// TestPackRandom packs names that are ends of each other, or nearly, many in a message, also where pointers
// are long.
func TestPackRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	label := func() string { return []string{"a", "b", "ab", "ba", "aa", "A", "aba", "x1"}[r.IntN(8)] }
	name := func() string {
		var s string
		for range 1 + r.IntN(4) {
			s += label() + "."
		}
		return s
	}
	ordinary := 0
	for range 3000 {
		m := new(dns.Msg).SetQuestion(name(), dns.TypeA)
		if r.IntN(8) == 0 {
			m.Question = append(m.Question, m.Question[0])
		}
		m.Compress = r.IntN(4) > 0
		name := func() string { // the question's own often, as in most answers
			if r.IntN(3) == 0 {
				return m.Question[0].Name
			}
			return name()
		}
		for range r.IntN(25) {
			h := func(kind uint16) dns.RR_Header { return dns.RR_Header{Name: name(), Rrtype: kind, Class: 1, Ttl: 60} }
			switch r.IntN(5) {
			case 0:
				m.Answer = append(m.Answer, &dns.NS{Hdr: h(dns.TypeNS), Ns: name()})
			case 1:
				m.Ns = append(m.Ns, &dns.SRV{Hdr: h(dns.TypeSRV), Target: name()})
			case 2:
				m.Extra = append(m.Extra, &dns.A{Hdr: h(dns.TypeA), A: net.IPv4(192, 0, 2, 1)})
			case 3:
				m.Ns = append(m.Ns, &dns.SOA{Hdr: h(dns.TypeSOA), Ns: name(), Mbox: name()})
			case 4:
				m.Answer = append(m.Answer, &dns.TXT{Hdr: h(dns.TypeTXT), Txt: []string{strings.Repeat("t", r.IntN(256)), strings.Repeat("u", 255*r.IntN(2))}})
			}
		}
		for range 20 * r.IntN(2) {
			m.Extra = append(m.Extra, &dns.TXT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeTXT, Class: 1}, Txt: []string{strings.Repeat("t", 255)}})
		}
		for range 2 { // a name that is new at the end
			m.Extra = append(m.Extra, &dns.A{Hdr: dns.RR_Header{Name: "last.of.all.", Rrtype: dns.TypeA, Class: 1}, A: net.IPv4(192, 0, 2, 1)})
		}
		if checkPack(t, m, 16<<10) {
			ordinary++
		}
	}
	if ordinary < 2000 {
		t.Errorf("%d of 3000 are ordinary", ordinary)
	}
}

// TestPackLimits has lengths and codes about the largest.
func TestPackLimits(t *testing.T) {
	for n := range 12 {
		checkPack(t, answer(t, strings.Repeat("a.", 122+n)), 4096)
		m := answer(t, "org.", "org. 60 IN AAAA 2001:db8::1\norg. 60 IN TXT a")
		m.Answer[0].(*dns.AAAA).AAAA = make(net.IP, 2*n)
		checkPack(t, m, 4096)
		m.Answer = m.Answer[1:]
		m.Answer[0].(*dns.TXT).Txt[0] = strings.Repeat("t", 250+n)
		checkPack(t, m, 4096)
		m = answer(t, "org.").SetEdns0(1232, true)
		m.Rcode, m.Opcode = 0xFFF-5+n, 10+n
		checkPack(t, m, 4096)
	}
}

func TestPackAllocates(t *testing.T) {
	buf := make([]byte, replySize)
	for name, m := range ordinaryAnswers(t) {
		m.Compress = true
		if n := testing.AllocsPerRun(100, func() { packMessage(m, buf) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// FuzzPack compares messages that the library has unpacked, as they are and with their sections as answers.
func FuzzPack(f *testing.F) {
	for _, m := range ordinaryAnswers(f) {
		data, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, true)
		f.Add(data, false)
	}
	f.Fuzz(func(t *testing.T, data []byte, compress bool) {
		m := new(dns.Msg)
		if m.Unpack(data) != nil {
			return // no message
		}
		m.Compress = compress
		checkPack(t, m, replySize)
		m.Answer = append(m.Answer, m.Answer...)
		checkPack(t, m, 16<<10)
	})
}

func BenchmarkPack(b *testing.B) {
	buf := make([]byte, replySize)
	for name, m := range map[string]*dns.Msg{"small": ordinaryAnswers(b)["address"], "delegation": ordinaryAnswers(b)["delegation"], "signed": ordinaryAnswers(b)["signed"]} {
		m.Compress = name != "small"
		b.Run(name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				packMessage(m, buf)
			}
		})
		b.Run(name+"/library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.PackBuffer(buf)
			}
		})
	}
}
