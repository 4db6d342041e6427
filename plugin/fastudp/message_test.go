package fastudp

import (
	"bytes"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/miekg/dns"
)

func wire(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	data, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// ordinaryMessages are those that are read without the library.
func ordinaryMessages(t testing.TB) [][]byte {
	question := func(name string) *dns.Msg { return new(dns.Msg).SetQuestion(name, dns.TypeA) }
	flags := question("a.example.")
	flags.AuthenticatedData, flags.CheckingDisabled, flags.RecursionDesired = true, true, false
	long := strings.Repeat("w", 63) + "." + strings.Repeat(strings.Repeat("x", 62)+".", 2)
	edns := question("a.example.").SetEdns0(1232, true)
	version := question("a.example.").SetEdns0(0, false)
	version.IsEdns0().SetVersion(3)
	version.IsEdns0().SetExtendedRcode(0xABC)
	return [][]byte{
		wire(t, question(".")), wire(t, question("a.example.")), wire(t, question("A-1_b*/!~.eXample.")), wire(t, flags),
		wire(t, question(strings.Repeat("y", 62)+"."+long)), wire(t, question(strings.Repeat("y", 63)+"."+long)), // 255 octets, as many as there may be
		wire(t, edns), wire(t, version),
		append(wire(t, question("a.example.")), "trailing"...), append(wire(t, edns), "trailing"...),
	}
}

// otherMessages are left to the library.
func otherMessages(t testing.TB) [][]byte {
	question := func(name string) *dns.Msg { return new(dns.Msg).SetQuestion(name, dns.TypeA) }
	option := question("a.example.").SetEdns0(4096, false)
	option.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0011223344556677"}}
	two := question("a.example.").SetEdns0(4096, false)
	two.Extra = append(two.Extra, two.Extra[0])
	record := question("a.example.")
	record.Extra = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "a.", Rrtype: dns.TypeA, Class: dns.ClassINET}, A: []byte{1, 2, 3, 4}}}
	owner := question("a.example.").SetEdns0(4096, false)
	owner.Extra[0].Header().Name = "a."
	tooLong := bytes.ReplaceAll(wire(t, question(strings.Repeat(strings.Repeat("x", 60)+".", 4))), []byte("\x3cxxx"), []byte("\x3fxxxxxx"))
	compressed := append(wire(t, question("."))[:headerSize], 0xC0, 4, 0, 1, 0, 1)
	noClass := wire(t, question("a."))
	lie := wire(t, question("a.example."))
	lie[11] = 1
	data := [][]byte{
		wire(t, option), wire(t, two), wire(t, record), wire(t, owner), tooLong, compressed, noClass[:len(noClass)-2], noClass[:len(noClass)-4], noClass[:headerSize], lie,
	}
	for _, name := range []string{`a\.b.`, `a\@b.`, `\000.`, `\255.`, `a\ b.`, `a\"b.`} {
		data = append(data, wire(t, question(name)))
	}
	return data
}

// checkUnpack compares with the library.
func checkUnpack(t testing.TB, data []byte) (ordinary bool) {
	t.Helper()
	kept := bytes.Clone(data)
	var want dns.Msg
	wantErr := want.Unpack(data)
	m, err := unpackMessage(data)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%x: error %v, the library's %v", data, err, wantErr)
	}
	with := new(messageOPT)
	ordinary = with.unpackOrdinary(data, with)
	if err != nil && ordinary {
		t.Fatalf("%x: the library refuses it: %v", data, wantErr)
	}
	clear(data) // what the message has is its own
	if err == nil && !reflect.DeepEqual(m.Msg, want) {
		t.Fatalf("%x:\n%#v\nthe library:\n%#v", kept, m.Msg, want)
	}
	return ordinary
}

// TestUnpack compares with the library, and checks that what is common needs no help from it.
func TestUnpack(t *testing.T) {
	for _, data := range ordinaryMessages(t) {
		for cut := range data {
			checkUnpack(t, bytes.Clone(data[:cut]))
		}
		if !checkUnpack(t, bytes.Clone(data)) {
			t.Errorf("left to the library: %x", data)
		}
	}
	for _, data := range otherMessages(t) {
		if checkUnpack(t, bytes.Clone(data)) {
			t.Errorf("not left to the library: %x", data)
		}
	}
}

// TestUnpackAppends checks that what a plugin appends to a section does not overwrite another.
func TestUnpackAppends(t *testing.T) {
	m, err := unpackMessage(wire(t, new(dns.Msg).SetQuestion("a.", dns.TypeA).SetEdns0(512, true)))
	if err != nil {
		t.Fatal(err)
	}
	if cap(m.Question) != 1 || cap(m.Extra) != 1 {
		t.Errorf("capacities %d and %d", cap(m.Question), cap(m.Extra))
	}
}

// TestUnpackAllocates once, and once more for the name. The sizes are those of an allocator's class:
// a field more would cost every query 32 bytes or more.
func TestUnpackAllocates(t *testing.T) {
	if n := unsafe.Sizeof(message{}); unsafe.Sizeof(uintptr(0)) == 8 && n > 256 {
		t.Errorf("a message takes %d bytes", n)
	}
	if n := unsafe.Sizeof(messageOPT{}); unsafe.Sizeof(uintptr(0)) == 8 && n > 320 {
		t.Errorf("a message with an OPT record takes %d bytes", n)
	}
	data := wire(t, new(dns.Msg).SetQuestion("a.example.", dns.TypeA).SetEdns0(1232, true))
	if n := testing.AllocsPerRun(100, func() { unpackMessage(data) }); n != 2 {
		t.Errorf("%v allocations", n)
	}
}

// TestLocalAddress checks that responses share the address that they leave from, and that none loses its own to another.
func TestLocalAddress(t *testing.T) {
	e := new(engine)
	asked := func(a netip.Addr) *response {
		w := &response{engine: e}
		w.setPeer(peer{addr: netip.MustParseAddrPort("192.0.2.1:53"), local: a})
		return w
	}
	first, second := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")
	ws := []*response{asked(first), asked(first), asked(second), asked(netip.Addr{}), asked(first)}
	for i, want := range []netip.Addr{first, first, second, {}, first} {
		if got := ws[i].peer().local; got != want {
			t.Errorf("response %d leaves from %v, want %v", i, got, want)
		}
	}
	if ws[0].local != ws[1].local {
		t.Error("an address is kept twice")
	}
}

func FuzzUnpack(f *testing.F) {
	for _, data := range append(ordinaryMessages(f), otherMessages(f)...) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkUnpack(t, bytes.Clone(data)) })
}
