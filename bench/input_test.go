package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fastudp/fastudp/internal/rootzone"
	"github.com/miekg/dns"
)

const tinyZone = `$TTL 60
. SOA a.b. c.b. 1 2 3 4 5
. NS a.b.
a.b. A 192.0.2.1
b. NS a.b.
b. DS 1 13 2 E2D3C916F6DEEAC73294E8268FB5885044A833FC5459588F4A9184CFC41A5766
c. NS a.b.
`

// TestSignZone verifies the signatures and that they cover what is authoritative, and nothing else.
func TestSignZone(t *testing.T) {
	records, err := signZone(strings.NewReader(tinyZone), 1024)
	if err != nil {
		t.Fatal(err)
	}
	sets := make(map[string][]dns.RR)
	key := func(rr dns.RR, of uint16) string { return rr.Header().Name + " " + dns.Type(of).String() }
	var dnskey *dns.DNSKEY
	next := make(map[string]string)
	for _, rr := range records {
		sets[key(rr, rr.Header().Rrtype)] = append(sets[key(rr, rr.Header().Rrtype)], rr)
		switch rr := rr.(type) {
		case *dns.DNSKEY:
			dnskey = rr
		case *dns.NSEC:
			next[rr.Hdr.Name] = rr.NextDomain
		}
	}
	if next["."] != "b." || next["b."] != "c." || next["c."] != "." || len(next) != 3 {
		t.Errorf("NSEC chain %v", next)
	}
	var signed []string
	for _, rr := range records {
		if s, ok := rr.(*dns.RRSIG); ok {
			signed = append(signed, key(s, s.TypeCovered))
			if err := s.Verify(dnskey, sets[key(s, s.TypeCovered)]); err != nil {
				t.Errorf("%s: %v", key(s, s.TypeCovered), err)
			}
		}
	}
	slices.Sort(signed)
	if want := []string{". DNSKEY", ". NS", ". NSEC", ". SOA", "b. DS", "b. NSEC", "c. NSEC"}; !slices.Equal(signed, want) {
		t.Errorf("signed %q, want %q", signed, want)
	}
	if _, err := signZone(strings.NewReader("a. 60 A nonsense\n"), 1024); err == nil {
		t.Error("a broken zone is accepted")
	}
}

// TestInput reads what has been written: zones parse and every question is one of its zone's names.
func TestInput(t *testing.T) {
	in, err := newInput(t.TempDir(), "127.0.0.1:1", 1024)
	if err != nil {
		t.Fatal(err)
	}
	var plain bytes.Buffer
	if err := rootzone.Generate(&plain, rootzone.Seed); err != nil {
		t.Fatal(err)
	}
	questions, err := rootzone.Questions(&plain)
	if err != nil {
		t.Fatal(err)
	}
	const most = 50000
	for name, w := range in {
		q, err := w.wire(most)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int{"whoami": 1, "miss-1%": most, "miss-10%": most, "miss-100%": most,
			"root": len(questions) + 1, "root-do": len(questions) + 1, "root-cache": len(questions) + 1}[name] // and the DNSKEY
		if want == 0 {
			want = smallNames
		}
		if len(q) != want {
			t.Errorf("%s: %d questions, want %d", name, len(q), want)
		}
		var m dns.Msg
		if err := m.Unpack(q[0]); err != nil || m.IsEdns0() != nil != w.do {
			t.Errorf("%s: %v, %v", name, &m, err)
		}
		if w.zoneFile == "" {
			continue
		}
		f, err := os.Open(w.zoneFile)
		if err != nil {
			t.Fatal(err)
		}
		zp := dns.NewZoneParser(f, w.zone, "")
		n := 0
		for _, ok := zp.Next(); ok; _, ok = zp.Next() {
			n++
		}
		f.Close()
		if zp.Err() != nil || n < smallNames {
			t.Errorf("%s: %d records, %v", w.zoneFile, n, zp.Err())
		}
	}
}

func TestMissing(t *testing.T) {
	for _, percent := range []int{1, 100} {
		var b bytes.Buffer
		missing(&b, percent)
		lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
		n, seen := 0, make(map[string]bool)
		for _, l := range lines {
			if l[0] == missPrefix {
				n++
				if seen[l] {
					t.Fatalf("%s is asked for twice", l)
				}
				seen[l] = true
			}
		}
		if got := 100 * float64(n) / float64(len(lines)); got < 0.95*float64(percent) || got > 1.05*float64(percent) {
			t.Errorf("%.2f %% miss, want %d", got, percent)
		}
	}
}

func TestAnswerTo(t *testing.T) {
	for name, ttl := range map[string]uint32{"n1.example.org.": 3600, "m1.example.org.": 1} {
		q := new(dns.Msg).SetQuestion(name, dns.TypeA)
		q.SetEdns0(1232, false)
		b, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		var a dns.Msg
		if err := a.Unpack(answerTo(b)); err != nil {
			t.Fatal(err)
		}
		if a.Id != q.Id || !a.Response || a.Rcode != 0 || len(a.Answer) != 1 || a.Answer[0].Header().Ttl != ttl || a.Answer[0].Header().Name != name || len(a.Extra) != 0 {
			t.Errorf("%s: answer\n%s", name, &a)
		}
		for i := range 12 + len(name) + 5 {
			if got := answerTo(b[:i]); got != nil {
				t.Errorf("%d bytes of the query have the answer % x", i, got)
			}
		}
	}
}
