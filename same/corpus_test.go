package same

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// message is one datagram of the corpus. Its ID is 0 and to be set.
type message struct {
	name  string
	data  []byte
	alone bool // it changes what later messages get, or takes much room in a socket's buffer
}

const (
	keyName   = "key.example.org."
	otherKey  = "other.example.org."
	keySecret = "i9M+00yrECfVZG2qCjr4mPpaGim/Bq+IWMiNrLjUO4Y="
	badSecret = "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk="
)

// maxDatagram is the longest UDP payload over IPv4.
const maxDatagram = 65507

// stockReads is what stock reads of a datagram, longest what fastudp does.
const (
	stockReads = 512
	longest    = 4096
)

// zoneNames are names in each block of the Corefile that the corpus is for.
var zoneNames = []string{
	"www.example.org.", "example.org.", "alias.example.org.", "chain.example.org.", "nx.example.org.",
	"a.b.wild.example.org.", "big.example.org.", "huge.example.org.", "x.dname.example.org.",
	"host.sub.example.org.", "ent.example.org.", "mx.example.org.", "many.example.org.",
	"who.test.", "x.who.test.", "signed.test.", "dyn.test.", "www.dyn.test.", "acl.test.", "www.acl.test.",
	"any.test.", "tmpl.test.", "a.tmpl.test.", "old.rw.test.", "www.fwd.test.", "nx.fwd.test.",
	"servfail.fwd.test.", "www.dead.test.", ".", "com.", "nosuchtld.", "empty.test.", "bare.",
}

// corpus is the same at every call for the same time, which signatures need.
func corpus(now time.Time) []message {
	b := &builder{now: now}
	b.headers()
	b.counts()
	b.questions()
	b.names()
	b.classesAndTypes()
	b.zones()
	b.edns()
	b.tsig()
	b.otherOpcodes()
	b.responses()
	b.truncated()
	b.lengths()
	b.random()
	return b.all
}

type builder struct {
	now time.Time
	all []message
}

func (b *builder) add(name string, data []byte) {
	if len(data) > maxDatagram {
		data = data[:maxDatagram]
	}
	b.all = append(b.all, message{name: name, data: withID(data, 0), alone: len(data) > 8192})
}

func (b *builder) addMsg(name string, m *dns.Msg) { b.add(name, pack(m)) }

// header is a DNS header.
func header(bits uint16, counts ...uint16) []byte {
	h := make([]byte, 12)
	binary.BigEndian.PutUint16(h[2:], bits)
	for i, c := range counts {
		binary.BigEndian.PutUint16(h[4+2*i:], c)
	}
	return h
}

// wireName encodes dotted labels without any escapes.
func wireName(name string) []byte {
	var b []byte
	for l := range strings.SplitSeq(strings.Trim(name, "."), ".") {
		if l != "" {
			b = append(append(b, byte(len(l))), l...)
		}
	}
	return append(b, 0)
}

func wireQuestion(name []byte, qtype, class uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(slices.Clone(name), qtype), class)
}

// wireRecord is a resource record with the rdlength given, whatever the length of rdata.
func wireRecord(name []byte, rrtype, class uint16, ttl uint32, rdlength int, rdata []byte) []byte {
	b := binary.BigEndian.AppendUint32(wireQuestion(name, rrtype, class), ttl)
	return append(binary.BigEndian.AppendUint16(b, uint16(rdlength)), rdata...)
}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

const rd = 1 << 8

var (
	root    = []byte{0}
	wwwName = wireName("www.example.org")
	wwwA    = wireQuestion(wwwName, dns.TypeA, dns.ClassINET)
)

func (b *builder) headers() {
	flags := map[string]uint16{
		"none": 0, "qr": 1 << 15, "aa": 1 << 10, "tc": 1 << 9, "rd": rd, "ra": 1 << 7, "z": 1 << 6,
		"ad": 1 << 5, "cd": 1 << 4, "all but qr": 0x7F0, "all": 0x87F0,
	}
	for _, name := range []string{"none", "aa", "tc", "rd", "ra", "z", "ad", "cd", "all but qr", "qr", "all"} {
		for opcode := range uint16(16) {
			for _, rcode := range []uint16{0, 1, 5, 15} {
				b.add(fmt.Sprintf("header %s opcode %d rcode %d", name, opcode, rcode),
					join(header(flags[name]|opcode<<11|rcode, 1), wwwA))
			}
		}
	}
}

func (b *builder) counts() {
	for qd := range uint16(4) {
		for an := range uint16(3) {
			for ns := range uint16(3) {
				for ar := range uint16(4) {
					b.add(fmt.Sprintf("counts %d %d %d %d, one question", qd, an, ns, ar), join(header(rd, qd, an, ns, ar), wwwA))
				}
			}
		}
	}
	record := wireRecord(wwwName, dns.TypeA, dns.ClassINET, 60, 4, []byte{192, 0, 2, 1})
	for n := range 4 {
		for section := 1; section < 4; section++ {
			counts := []uint16{1, 0, 0, 0}
			counts[section] = uint16(n)
			b.add(fmt.Sprintf("%d records in section %d", n, section), join(header(rd, counts...), wwwA, slices.Repeat(record, n)))
		}
		for opcode := range uint16(6) {
			b.add(fmt.Sprintf("%d records everywhere, opcode %d", n, opcode), join(header(opcode<<11, 1, uint16(n), uint16(n), uint16(n)), wwwA, slices.Repeat(record, 3*n)))
		}
	}
	for section := range 4 {
		counts := []uint16{1, 0, 0, 0}
		counts[section] = 65535
		b.add(fmt.Sprintf("count 65535 in section %d", section), join(header(rd, counts...), wwwA))
		b.add(fmt.Sprintf("count 65535 in section %d, one record", section), join(header(rd, counts...), wwwA, record))
	}
}

func (b *builder) questions() {
	for n := range 4 {
		b.add(fmt.Sprintf("%d questions", n), join(header(rd, uint16(n)), slices.Repeat(wwwA, n)))
		b.add(fmt.Sprintf("%d questions, garbage", n), join(header(rd, uint16(n)), slices.Repeat(wwwA, n), []byte("garbage")))
		b.add(fmt.Sprintf("%d questions for a header of 1", n), join(header(rd, 1), slices.Repeat(wwwA, n)))
	}
	for n := range 40 {
		b.add(fmt.Sprintf("question and %d zero bytes", n), join(header(rd, 1), wwwA, make([]byte, n)))
	}
}

func (b *builder) names() {
	ask := func(name string, wire ...byte) {
		b.add("name "+name, join(header(rd, 1), wireQuestion(wire, dns.TypeA, dns.ClassINET)))
	}
	ask("pointer to itself", 0xC0, 12)
	ask("pointer into the header", 0xC0, 0)
	ask("pointer to the end of the header", 0xC0, 11)
	ask("forward pointer", 0xC0, 18)
	ask("pointer past the end", 0xC0, 200)
	ask("pointer far past the end", 0xFF, 0xFF)
	ask("label and pointer to itself", 1, 'a', 0xC0, 12)
	ask("half a pointer", 0xC0)
	ask("root", 0)
	ask("two loops", 0xC0, 14, 0xC0, 12)
	for _, kind := range []byte{0x40, 0x80, 0x41, 0x81, 0xBF} {
		ask(fmt.Sprintf("label type %#x", kind), kind, 'a', 0)
	}
	b.add("name forward pointer to a good name", join(header(rd, 1), []byte{0xC0, 18, 0, 1, 0, 1}, wwwName))
	b.add("name good pointer backwards", join(header(rd, 1, 0, 0, 1), wwwA, wireRecord([]byte{0xC0, 12}, dns.TypeA, 1, 0, 4, []byte{1, 2, 3, 4})))
	for _, hops := range []int{2, 9, 10, 11, 126, 127, 128, 200} {
		// The question's name is a pointer to the last of a chain of pointers behind it.
		chain := join(header(rd, 1), []byte{0, 0, 0, 1, 0, 1})
		start := len(chain)
		chain = append(chain, wwwName...)
		at := start
		for range hops {
			p := len(chain)
			chain = append(chain, 0xC0|byte(at>>8), byte(at))
			at = p
		}
		copy(chain[12:], []byte{0xC0 | byte(at>>8), byte(at)})
		b.add(fmt.Sprintf("name chain of %d pointers", hops), chain)
	}
	for _, n := range []int{1, 62, 63, 64, 65, 100, 191, 192, 255} {
		ask(fmt.Sprintf("label of %d", n), join([]byte{byte(n)}, slices.Repeat([]byte{'x'}, n), wireName("example.org"))...)
	}
	for _, labels := range []int{126, 127, 128, 129} {
		ask(fmt.Sprintf("%d labels of one octet", labels), append(slices.Repeat([]byte{1, 'a'}, labels), 0)...)
	}
	for _, last := range []int{59, 60, 61, 62, 63} {
		wire := slices.Repeat(append([]byte{63}, slices.Repeat([]byte{'y'}, 63)...), 3)
		wire = append(append(wire, byte(last)), slices.Repeat([]byte{'z'}, last)...)
		ask(fmt.Sprintf("of %d octets", len(wire)+1), append(wire, 0)...)
	}
	long := strings.Repeat(strings.Repeat("w", 63)+".", 3) + strings.Repeat("v", 40) + ".example.org"
	ask("long and in the zone", wireName(long)...)
	for c := range 256 {
		ask(fmt.Sprintf("octet %#02x", c), join([]byte{3, 'a', byte(c), 'b'}, wireName("wild.example.org"))...)
	}
	for _, escapes := range []string{`a\.b`, `\000\001\255`, `\"\;\(\)`, `\\`, `WwW`, `*`, `_tcp`, ` `, "\t", "é"} {
		if m := question(escapes+".wild.example.org.", dns.TypeTXT); m != nil {
			if p, err := m.Pack(); err == nil {
				b.add(fmt.Sprintf("name %q", escapes), p)
			}
		}
	}
	for _, cased := range []string{"WWW.EXAMPLE.ORG", "wWw.ExAmPlE.oRg", "ALIAS.example.ORG", "A.TMPL.test", "BIG.example.org"} {
		ask("cased "+cased, wireName(cased)...)
	}
	ask("without its end", 3, 'w', 'w', 'w')
	b.add("name runs out", join(header(rd, 1), []byte{63, 'a'}))
	b.add("name nothing", header(rd, 1))
	b.add("name without class", join(header(rd, 1), wwwName, []byte{0, 1}))
	b.add("name with half a class", join(header(rd, 1), wwwName, []byte{0, 1, 0}))
}

func (b *builder) classesAndTypes() {
	for _, class := range []uint16{0, 1, 2, 3, 4, 5, 253, 254, 255, 256, 65535} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeANY} {
			for _, name := range []string{"www.example.org", "version.bind", "version.server", "authors.bind", "hostname.bind", "id.server", "x.who.test", "any.test"} {
				b.add(fmt.Sprintf("class %d type %d %s", class, qtype, name), join(header(rd, 1), wireQuestion(wireName(name), qtype, class)))
			}
		}
	}
	for _, qtype := range append(upTo(261), 32768, 32769, 65280, 65534, 65535) {
		for _, name := range []string{"www.example.org", "", "any.test", "www.acl.test"} {
			if name == "www.acl.test" && qtype > 60 {
				continue
			}
			b.add(fmt.Sprintf("type %d %q", qtype, name), join(header(rd, 1), wireQuestion(wireName(name), qtype, 1)))
		}
	}
}

func upTo(n uint16) (all []uint16) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func (b *builder) zones() {
	for _, name := range zoneNames {
		for _, qtype := range []uint16{
			dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypeCNAME, dns.TypeSRV,
			dns.TypeDS, dns.TypeDNSKEY, dns.TypeNSEC, dns.TypeHTTPS, dns.TypeANY, dns.TypeAXFR, dns.TypeIXFR,
		} {
			m := question(name, qtype)
			b.addMsg(fmt.Sprintf("zone %s %d", name, qtype), m)
			m.SetEdns0(1232, true)
			b.addMsg(fmt.Sprintf("zone %s %d DO", name, qtype), m)
			m.CheckingDisabled, m.AuthenticatedData, m.RecursionDesired = true, true, false
			b.addMsg(fmt.Sprintf("zone %s %d CD AD", name, qtype), m)
		}
	}
}

// opt is an OPT record with raw options.
func opt(size uint16, rcode, version byte, flags uint16, options []byte) []byte {
	ttl := uint32(rcode)<<24 | uint32(version)<<16 | uint32(flags)
	return wireRecord(root, dns.TypeOPT, size, ttl, len(options), options)
}

func option(code uint16, data ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, code)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
}

const do = 1 << 15

func (b *builder) edns() {
	for _, name := range []string{"www.example.org", "big.example.org", "huge.example.org", "who.test", "version.bind"} {
		q := wireQuestion(wireName(name), dns.TypeTXT, dns.ClassINET)
		for _, version := range []byte{0, 1, 255} {
			for _, size := range []uint16{0, 1, 511, 512, 513, 1232, 4096, 65535} {
				for _, flags := range []uint16{0, do} {
					b.add(fmt.Sprintf("edns %s version %d size %d flags %#x", name, version, size, flags),
						join(header(rd, 1, 0, 0, 1), q, opt(size, 0, version, flags, nil)))
				}
			}
		}
	}
	ask := func(name string, counts []uint16, parts ...[]byte) {
		b.add("edns "+name, join(append([][]byte{header(rd, counts...), wwwA}, parts...)...))
	}
	one := []uint16{1, 0, 0, 1}
	plain := opt(1232, 0, 0, 0, nil)
	for _, flags := range []uint16{1, 0x4000, 0x7FFF, 0xFFFF} {
		ask(fmt.Sprintf("flags %#x", flags), one, opt(1232, 0, 0, flags, nil))
	}
	for _, rcode := range []byte{1, 16, 255} {
		ask(fmt.Sprintf("extended rcode %d", rcode), one, opt(1232, rcode, 0, 0, nil))
	}
	ask("two OPTs", []uint16{1, 0, 0, 2}, plain, opt(4096, 0, 0, do, nil))
	ask("two OPTs, second version 1", []uint16{1, 0, 0, 2}, plain, opt(4096, 0, 1, do, nil))
	ask("two OPTs, first version 1", []uint16{1, 0, 0, 2}, opt(4096, 0, 1, do, nil), plain)
	ask("three OPTs", []uint16{1, 0, 0, 3}, plain, plain, plain)
	ask("OPT among the answers", []uint16{1, 1, 0, 0}, plain)
	ask("OPT in authority", []uint16{1, 0, 1, 0}, plain)
	ask("OPT in authority and additional", []uint16{1, 0, 1, 1}, plain, plain)
	ask("OPT and A", []uint16{1, 0, 0, 2}, plain, wireRecord(wwwName, dns.TypeA, 1, 0, 4, []byte{1, 2, 3, 4}))
	ask("A and OPT", []uint16{1, 0, 0, 2}, wireRecord(wwwName, dns.TypeA, 1, 0, 4, []byte{1, 2, 3, 4}), plain)
	ask("OPT with a name", one, wireRecord(wwwName, dns.TypeOPT, 1232, 0, 0, nil))
	ask("rdlength past the end", one, wireRecord(root, dns.TypeOPT, 1232, 0, 4, nil))
	ask("rdlength 65535", one, wireRecord(root, dns.TypeOPT, 1232, 0, 65535, option(3)))
	ask("half an option", one, opt(1232, 0, 0, 0, []byte{0, 3}))
	ask("option longer than rdata", one, opt(1232, 0, 0, 0, []byte{0, 3, 0, 9, 1}))
	ask("type 41 as a question", one, plain, plain)
	b.add("edns question of type OPT", join(header(rd, 1), wireQuestion(root, dns.TypeOPT, 1232)))

	cookie := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	options := map[string][]byte{
		"cookie": option(10, cookie...), "cookie and server cookie": option(10, slices.Repeat(cookie, 3)...),
		"cookie too short": option(10, 1), "cookie too long": option(10, slices.Repeat(cookie, 6)...), "empty cookie": option(10),
		"two cookies": join(option(10, cookie...), option(10, cookie...)),
		"subnet v4":   option(8, 0, 1, 24, 0, 192, 0, 2), "subnet v6": option(8, 0, 2, 56, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0),
		"subnet /0": option(8, 0, 1, 0, 0), "subnet /32": option(8, 0, 1, 32, 0, 192, 0, 2, 1),
		"subnet family 0": option(8, 0, 0, 0, 0), "subnet family 3": option(8, 0, 3, 24, 0, 1, 2, 3),
		"subnet prefix 33": option(8, 0, 1, 33, 0, 192, 0, 2, 1, 0), "subnet prefix 129": option(8, 0, 2, 129, 0),
		"subnet address too short": option(8, 0, 1, 24, 0, 192), "subnet address too long": option(8, 0, 1, 8, 0, 192, 0, 2, 1),
		"subnet with scope": option(8, 0, 1, 24, 24, 192, 0, 2), "subnet of 3 bytes": option(8, 0, 1, 24), "empty subnet": option(8),
		"padding 0": option(12), "padding 128": option(12, make([]byte, 128)...), "padding not zero": option(12, cookie...),
		"nsid": option(3), "nsid with data": option(3, 'x'),
		"keepalive": option(11), "keepalive with time": option(11, 0, 100), "keepalive of one byte": option(11, 1),
		"expire": option(9), "expire with time": option(9, 0, 0, 0, 1), "expire of 3 bytes": option(9, 0, 0, 0),
		"error": option(15, 0, 1, 'x'), "error of one byte": option(15, 1), "unknown": option(65001, 1, 2, 3), "code 0": option(0), "code 65535": option(65535, 1),
		"dau": option(5, 8, 13), "dhu": option(6, 1), "n3u": option(7, 1), "chain": option(13, root...), "ul": option(2, 0, 0, 0, 1), "llq": option(1, make([]byte, 18)...), "llq too short": option(1, 1),
		"zone version": option(19), "zone version with data": option(19, 2, 0, 0, 0, 0, 1), "report channel": option(18, root...),
		"many": slices.Repeat(option(3), 60),
	}
	names := make([]string, 0, len(options))
	for name := range options {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		ask("option "+name, one, opt(1232, 0, 0, 0, options[name]))
		ask("option "+name+", DO", one, opt(1232, 0, 0, do, options[name]))
		for _, zone := range []string{"who.test", "www.fwd.test", "old.rw.test", "version.bind"} {
			b.add("edns option "+name+" "+zone, join(header(rd, 1, 0, 0, 1), wireQuestion(wireName(zone), dns.TypeTXT, 1), opt(4096, 0, 0, 0, options[name])))
		}
	}
}

// signed is m with a signature of the corpus's key made at age before now.
func (b *builder) signed(m *dns.Msg, key, secret, algorithm string, age time.Duration) []byte {
	m = m.Copy()
	m.SetTsig(key, algorithm, 300, b.now.Add(-age).Unix())
	data, _, err := dns.TsigGenerate(m, secret, "", false)
	if err != nil {
		panic(err)
	}
	return data
}

func (b *builder) sign(m *dns.Msg) []byte {
	return b.signed(m, keyName, keySecret, dns.HmacSHA256, 0)
}

// retsig is a signed message with its TSIG changed afterwards.
func retsig(data []byte, change func(*dns.TSIG)) []byte {
	m := new(dns.Msg)
	if err := m.Unpack(data); err != nil {
		panic(err)
	}
	change(m.IsTsig())
	return pack(m)
}

func (b *builder) tsig() {
	for _, zone := range []string{"signed.test.", "www.example.org.", "x.who.test.", "a.tmpl.test.", "www.fwd.test.", ".", "version.bind."} {
		m := question(zone, dns.TypeA)
		edns := m.Copy()
		edns.SetEdns0(1232, true)
		add := func(name string, data []byte) { b.add("tsig "+name+" "+zone, data) }
		for _, alg := range []string{dns.HmacSHA1, dns.HmacSHA224, dns.HmacSHA256, dns.HmacSHA384, dns.HmacSHA512} {
			add(alg, b.signed(m, keyName, keySecret, alg, 0))
		}
		good := b.sign(m)
		add("with edns", b.sign(edns))
		add("cased key", b.signed(m, strings.ToUpper(keyName), keySecret, dns.HmacSHA256, 0))
		add("wrong secret", b.signed(m, keyName, badSecret, dns.HmacSHA256, 0))
		add("unknown key", b.signed(m, "nobody.", keySecret, dns.HmacSHA256, 0))
		add("other key", b.signed(m, otherKey, badSecret, dns.HmacSHA256, 0))
		add("old", b.signed(m, keyName, keySecret, dns.HmacSHA256, time.Hour))
		add("from the future", b.signed(m, keyName, keySecret, dns.HmacSHA256, -time.Hour))
		add("old and unknown", b.signed(m, "nobody.", keySecret, dns.HmacSHA256, time.Hour))
		add("bad mac", retsig(good, func(t *dns.TSIG) { t.MAC = strings.Repeat("00", 32) }))
		add("short mac", retsig(good, func(t *dns.TSIG) { t.MAC, t.MACSize = t.MAC[:32], 16 }))
		add("one octet of mac", retsig(good, func(t *dns.TSIG) { t.MAC, t.MACSize = t.MAC[:2], 1 }))
		add("no mac", retsig(good, func(t *dns.TSIG) { t.MAC, t.MACSize = "", 0 }))
		add("algorithm unknown", retsig(good, func(t *dns.TSIG) { t.Algorithm = "rot13." }))
		add("md5", retsig(good, func(t *dns.TSIG) { t.Algorithm = dns.HmacMD5 }))
		add("error set", retsig(good, func(t *dns.TSIG) { t.Error = dns.RcodeBadKey }))
		add("other id", retsig(good, func(t *dns.TSIG) { t.OrigId = 4711 }))
		add("class IN", retsig(good, func(t *dns.TSIG) { t.Hdr.Class = dns.ClassINET }))
		add("with ttl", retsig(good, func(t *dns.TSIG) { t.Hdr.Ttl = 7 }))
		add("other data", retsig(good, func(t *dns.TSIG) { t.OtherLen, t.OtherData = 6, "000000000001" }))
		add("good and garbage", join(good, []byte("garbage")))
		flipped := slices.Clone(good)
		flipped[14] ^= 0x20
		add("question changed", flipped)

		record := func(data []byte) dns.RR {
			m := new(dns.Msg)
			if err := m.Unpack(data); err != nil {
				panic(err)
			}
			return m.IsTsig()
		}(good)
		notLast := m.Copy()
		o := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT, Class: 1232}}
		notLast.Extra = []dns.RR{record, o}
		b.addMsg("tsig not last "+zone, notLast)
		notLast.Extra = []dns.RR{record, record}
		b.addMsg("tsig twice "+zone, notLast)
		notLast.Extra = []dns.RR{o, o, record}
		b.addMsg("tsig after two OPTs "+zone, notLast)
		notLast.Extra, notLast.Ns = nil, []dns.RR{record}
		b.addMsg("tsig in authority "+zone, notLast)
		notLast.Ns, notLast.Answer = nil, []dns.RR{record}
		b.addMsg("tsig among the answers "+zone, notLast)

		sig0 := m.Copy()
		sig0.Extra = []dns.RR{&dns.SIG{RRSIG: dns.RRSIG{
			Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeSIG, Class: dns.ClassANY}, Algorithm: dns.ED25519, KeyTag: 4711,
			SignerName: "signer.example.org.", Expiration: uint32(b.now.Unix()) + 300, Inception: uint32(b.now.Unix()) - 300,
			Signature: "AAECAwQFBgcICQoLDA0ODw==",
		}}}
		b.addMsg("sig(0) "+zone, sig0)
		sig0.Extra = append(sig0.Extra, record)
		b.addMsg("sig(0) and tsig "+zone, sig0)
	}
	axfr := question("example.org.", dns.TypeAXFR)
	b.add("tsig axfr", b.sign(axfr))
	notify := question("example.org.", dns.TypeSOA)
	notify.Opcode = dns.OpcodeNotify
	b.add("tsig notify", b.sign(notify))
}

func (b *builder) otherOpcodes() {
	for _, zone := range []string{"example.org.", "signed.test.", "dyn.test.", "fwd.test.", "nowhere.test.", "."} {
		m := new(dns.Msg).SetNotify(zone)
		m.Id = 0
		b.addMsg("notify "+zone, m)
		soa, err := dns.NewRR(zone + " 60 IN SOA ns. mail. 2 3600 600 86400 60")
		if err != nil {
			panic(err)
		}
		m.Answer = []dns.RR{soa}
		b.addMsg("notify with soa "+zone, m)
		m.SetEdns0(1232, false)
		b.addMsg("notify with edns "+zone, m)
		for _, qtype := range []uint16{dns.TypeAXFR, dns.TypeIXFR} {
			m := question(zone, qtype)
			b.addMsg(fmt.Sprintf("transfer %d %s", qtype, zone), m)
			m.Ns = []dns.RR{soa}
			b.addMsg(fmt.Sprintf("transfer %d with soa %s", qtype, zone), m)
			m.Ns = []dns.RR{soa, soa}
			b.addMsg(fmt.Sprintf("transfer %d with two soas %s", qtype, zone), m)
			m.Ns = nil
			m.SetEdns0(4096, true)
			b.addMsg(fmt.Sprintf("transfer %d with edns %s", qtype, zone), m)
		}
		update := new(dns.Msg).SetUpdate(zone)
		update.Id = 0
		b.alone("update empty "+zone, pack(update))
		b.alone("update empty, signed "+zone, b.sign(update))
		rr, err := dns.NewRR(`new.` + strings.TrimPrefix(zone, ".") + ` 60 IN TXT "new"`)
		if err != nil {
			panic(err)
		}
		update.Insert([]dns.RR{rr})
		b.alone("update insert, unsigned "+zone, pack(update))
		b.alone("update insert, wrong secret "+zone, b.signed(update, keyName, badSecret, dns.HmacSHA256, 0))
		b.alone("update insert, old "+zone, b.signed(update, keyName, keySecret, dns.HmacSHA256, time.Hour))
		b.alone("update insert, signed "+zone, b.sign(update))
		b.alone("updated "+zone, pack(question("new."+strings.TrimPrefix(zone, "."), dns.TypeTXT)))
		b.alone("updated soa "+zone, pack(question(zone, dns.TypeSOA)))
		needs := new(dns.Msg).SetUpdate(zone)
		needs.Id = 0
		needs.NameUsed([]dns.RR{rr})
		needs.RemoveName([]dns.RR{rr})
		b.alone("update remove if there, signed "+zone, b.sign(needs))
		b.alone("update remove again, signed "+zone, b.sign(needs))
		b.alone("removed "+zone, pack(question("new."+strings.TrimPrefix(zone, "."), dns.TypeTXT)))
		b.alone("removed soa "+zone, pack(question(zone, dns.TypeSOA)))
		many := new(dns.Msg).SetUpdate(zone)
		many.Id = 0
		many.Insert(slices.Repeat([]dns.RR{rr}, 30))
		b.alone("update longer than stock reads "+zone, b.sign(many))
	}
	for _, opcode := range []int{1, 2, 3, 6, 7, 15} {
		m := question("www.example.org.", dns.TypeA)
		m.Opcode = opcode
		b.add(fmt.Sprintf("opcode %d, signed", opcode), b.sign(m))
		m.SetEdns0(1232, true)
		b.addMsg(fmt.Sprintf("opcode %d with edns", opcode), m)
	}
}

func (b *builder) alone(name string, data []byte) {
	b.add(name, data)
	b.all[len(b.all)-1].alone = true
}

func (b *builder) responses() {
	m := question("www.example.org.", dns.TypeA)
	reply := new(dns.Msg).SetReply(m)
	b.addMsg("response empty", reply)
	reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "www.example.org.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(192, 0, 2, 1)}}
	b.addMsg("response", reply)
	b.add("response signed", b.sign(reply))
	for rcode := range 16 {
		reply.Rcode = rcode
		b.addMsg(fmt.Sprintf("response with rcode %d", rcode), reply)
	}
	b.add("response header alone", header(1<<15))
}

func (b *builder) truncated() {
	edns := question("www.example.org.", dns.TypeA)
	edns.SetEdns0(1232, true)
	edns.IsEdns0().Option = []dns.EDNS0{
		&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: hex.EncodeToString([]byte("01234567"))},
		&dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: net.IPv4(192, 0, 2, 0)},
	}
	notify := new(dns.Msg).SetNotify("example.org.")
	notify.Id = 0
	update := new(dns.Msg).SetUpdate("dyn.test.")
	update.Id = 0
	for name, data := range map[string][]byte{
		"query": pack(question("www.example.org.", dns.TypeA)), "edns": pack(edns), "signed": b.sign(question("signed.test.", dns.TypeA)),
		"notify": pack(notify), "update": b.sign(update), "zeros": make([]byte, 40), "ones": slices.Repeat([]byte{0xFF}, 40),
	} {
		for n := range data {
			b.add(fmt.Sprintf("truncated %s %d", name, n), data[:n])
		}
	}
	slices.SortStableFunc(b.all, func(x, y message) int { // maps have no order
		if strings.HasPrefix(x.name, "truncated") && strings.HasPrefix(y.name, "truncated") {
			return strings.Compare(x.name, y.name)
		}
		return 0
	})
}

// padded is m with EDNS padding that makes it size bytes long, if that is possible.
func padded(m *dns.Msg, size int) *dns.Msg {
	m = m.Copy()
	if m.IsEdns0() == nil {
		m.SetEdns0(1232, false)
	}
	o := m.IsEdns0()
	o.Option = append(o.Option, &dns.EDNS0_PADDING{})
	o.Option[len(o.Option)-1] = &dns.EDNS0_PADDING{Padding: make([]byte, max(size-m.Len(), 0))}
	return m
}

// longNames are the names that long queries ask for: stock answers these over TCP as it would over UDP.
var longNames = []string{"www.example.org.", "big.example.org.", "huge.example.org.", "nx.example.org.", "a.tmpl.test.", "com.", "any.test.", "old.rw.test."}

func (b *builder) lengths() {
	random := rand.New(rand.NewSource(2))
	garbage := make([]byte, maxDatagram)
	random.Read(garbage)
	www := question("www.example.org.", dns.TypeA)
	for _, size := range []int{511, 512, 513, 514, 600, 1000, 1232, 1472, 1500, 2000, 4094, 4095, 4096, 4097, 4098, 5000, 9000, 16384, 32768, 65000, maxDatagram} {
		fill := func(data []byte) []byte {
			if len(data) < size {
				return append(data, garbage[:size-len(data)]...)
			}
			return data[:size]
		}
		n := func(name string) string { return fmt.Sprintf("length %d %s", size, name) }
		b.add(n("query and garbage"), fill(pack(www)))
		b.add(n("query and zeros"), join(pack(www), make([]byte, max(0, size-len(pack(www))))))
		for _, name := range longNames {
			for _, qtype := range []uint16{dns.TypeA, dns.TypeTXT} {
				b.addMsg(n("padded query "+name), padded(question(name, qtype), size))
			}
		}
		b.add(n("padded query with a wrong count"), func() []byte { p := pack(padded(www, size)); p[11]++; return p }())
		b.add(n("garbage"), fill(nil))
		b.add(n("garbage with the header of a query"), fill(header(rd, 1, 0, 0, 1)))
		b.add(n("response"), func() []byte { p := pack(padded(www, size)); p[2] |= 0x80; return p }())
		if size < 60000 {
			b.add(n("padded and signed"), b.sign(padded(question("signed.test.", dns.TypeA), size-100)))
		}
		notify := new(dns.Msg).SetNotify("example.org.")
		notify.Id = 0
		b.addMsg(n("notify"), padded(notify, size))
		status := www.Copy()
		status.Opcode = dns.OpcodeStatus
		b.addMsg(n("status"), padded(status, size))
	}
	// A record ends just where stock or fastudp stops to read: to it the message is whole.
	for _, size := range []int{stockReads, longest} {
		m := padded(www, size)
		m.Extra = append(m.Extra, &dns.A{Hdr: dns.RR_Header{Name: "extra.example.org.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(192, 0, 2, 9)})
		b.addMsg(fmt.Sprintf("length record ends at %d", size), m)
	}
	b.add("length signed, the signature after 512", b.sign(padded(question("signed.test.", dns.TypeA), 512)))
}

func (b *builder) random() {
	random := rand.New(rand.NewSource(1))
	seeds := slices.DeleteFunc(slices.Clone(b.all), func(m message) bool { return m.alone || len(m.data) < 12 || len(m.data) > stockReads })
	for i := range 1500 {
		data := slices.Clone(seeds[random.Intn(len(seeds))].data)
		for range 1 + random.Intn(4) {
			switch at := random.Intn(len(data)); random.Intn(4) {
			case 0:
				data[at] ^= 1 << random.Intn(8)
			case 1:
				data[at] = byte(random.Intn(256))
			case 2:
				data = slices.Insert(data, at, byte(random.Intn(256)))
			default:
				data = slices.Delete(data, at, min(at+1+random.Intn(3), len(data)))
			}
			if len(data) < 12 {
				data = append(data, make([]byte, 12-len(data))...)
			}
		}
		data[2] &^= 0x80 // as a response it would be dropped unseen
		b.add(fmt.Sprintf("random change %d", i), data)
	}
	for i := range 300 {
		data := make([]byte, 12+random.Intn(200))
		random.Read(data)
		data[2] &^= 0xF8
		copy(data[4:], []byte{0, 1, 0, byte(random.Intn(2)), 0, byte(random.Intn(2)), 0, byte(random.Intn(3))})
		b.add(fmt.Sprintf("random bytes %d", i), data)
	}
}
