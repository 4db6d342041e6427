package same

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestSameAnswers sends the corpus to both and compares what comes back, or that nothing does.
func TestSameAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		corefile func(testing.TB) string
		want     []string // outcomes without which the corpus has missed its aim
	}{
		{"every kind of block", richCorefile, []string{
			"silence", "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "NOTAUTH", "BADVERS", "truncated",
			"signed", "verified", "updated",
		}},
		{"nothing but a zone", plainCorefile, []string{"silence", "NOERROR", "FORMERR", "NXDOMAIN", "NOTIMP", "REFUSED", "BADVERS", "truncated"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := startPair(t, c.corefile(t))
			all := corpus(time.Now())
			outcomes := make(map[string]int)
			compare(t, p, all, outcomes)
			t.Logf("%d messages: %v", len(all), outcomes)
			for _, w := range c.want {
				if outcomes[w] == 0 {
					t.Errorf("no message got %s", w)
				}
			}
		})
	}
}

// TestDifferenceIsSeen makes sure that the comparison can fail.
func TestDifferenceIsSeen(t *testing.T) {
	t.Parallel()
	one := startVariant(t, ".:PORT {\nbind 127.0.0.1\nFASTUDP\ntemplate IN A {\nanswer \"{{ .Name }} 1 IN A 192.0.2.1\"\n}\n}", 0)
	two := startVariant(t, ".:PORT {\nbind 127.0.0.1\nFASTUDP\ntemplate IN A {\nanswer \"{{ .Name }} 1 IN A 192.0.2.2\"\n}\ntemplate ANY ANY silent. {\nrcode REFUSED\n}\nacl {\ndrop type TXT net *\n}\n}", fast)
	c := newClient(t, [2]*instance{one, two})
	answers := c.ask(t, time.Second, pack(question("a.", dns.TypeA)), pack(question("a.", dns.TypeTXT)), pack(question("a.", dns.TypeMX)))
	if a := answers[0]; equal(a) || a[0] == nil || a[1] == nil {
		t.Errorf("two addresses are taken for the same:\n%s", showBoth(a))
	}
	if a := answers[1]; equal(a) || a[0] == nil {
		t.Errorf("an answer and silence are taken for the same:\n%s", showBoth(a))
	}
	if a := answers[2]; !equal(a) || a[0] == nil {
		t.Errorf("two equal answers are not the same:\n%s", showBoth(a))
	}
}

func compare(t *testing.T, p [2]*instance, all []message, outcomes map[string]int) {
	c := newClient(t, p)
	var usual, long []message
	for _, m := range all {
		if wanted(m.data) {
			long = append(long, m)
		} else {
			usual = append(usual, m)
		}
	}
	// First all with little patience, then again those that nobody has answered, then one by one
	// those whose answers differ.
	again := c.pass(t, usual, 60*time.Millisecond, outcomes, false)
	differ := c.pass(t, again, 500*time.Millisecond, outcomes, true)
	for i, m := range differ {
		if i > 20 {
			t.Fatalf("%d differ at first, giving up after %d", len(differ), i)
		}
		note(outcomes, c.same(t, m.name, m.data))
	}
	for _, m := range long {
		c.long(t, p, m)
	}
	if len(long) < 100 {
		t.Errorf("%d queries longer than stock reads", len(long))
	}
}

// pass asks in groups and returns the messages whose answers are not known to be the same. Silence of
// both counts only if it is final.
func (c *client) pass(t *testing.T, all []message, idle time.Duration, outcomes map[string]int, final bool) (rest []message) {
	for len(all) > 0 {
		n, size := 0, 0
		for n < len(all) && n < 64 && (n == 0 || !all[n].alone && !all[0].alone && size+len(all[n].data) < 24<<10) {
			size += len(all[n].data)
			n++
		}
		var group [][]byte
		for _, m := range all[:n] {
			group = append(group, m.data)
		}
		for i, a := range c.ask(t, idle, group...) {
			if !equal(a) || a[0] == nil && !final {
				rest = append(rest, all[i])
			} else {
				note(outcomes, a[0])
			}
		}
		all = all[n:]
	}
	return rest
}

// note counts what kind of answer it is.
func note(outcomes map[string]int, answer []byte) {
	m := new(dns.Msg)
	switch {
	case answer == nil:
		outcomes["silence"]++
		return
	case m.Unpack(answer) != nil:
		outcomes["malformed"]++
		return
	case m.Truncated:
		outcomes["truncated"]++
	case m.IsTsig() != nil:
		outcomes["signed"]++
	}
	rcode := dns.RcodeToString[m.Rcode]
	switch {
	case m.Rcode == dns.RcodeBadVers:
		rcode = "BADVERS"
	case m.Opcode == dns.OpcodeUpdate && m.Rcode == dns.RcodeSuccess:
		rcode = "updated"
	case m.IsTsig() != nil && m.Rcode == dns.RcodeSuccess:
		rcode = "verified"
	}
	outcomes[rcode]++
}

// wanted says whether fastudp shall differ: stock reads 512 bytes and calls what it cut malformed,
// fastudp reads ordinary queries of up to 4096 bytes.
func wanted(data []byte) bool {
	return len(data) > stockReads && len(data) <= longest && ordinary(data)
}

// ordinary says whether data is one well-formed, unsigned question that stock would accept.
func ordinary(data []byte) bool {
	m := new(dns.Msg)
	if m.Unpack(data) != nil || m.Response || m.Opcode != dns.OpcodeQuery || m.IsTsig() != nil {
		return false
	}
	count := func(at int) uint16 { return binary.BigEndian.Uint16(data[at:]) }
	return count(4) == 1 && count(6) <= 1 && count(8) <= 1 && count(10) <= 2
}

// long compares fastudp's answer to a long query with stock's over TCP, which reads it whole.
func (c *client) long(t *testing.T, p [2]*instance, m message) {
	t.Helper()
	if ordinary(m.data[:stockReads]) && strings.Contains(m.name, "and ") {
		c.same(t, m.name, m.data) // what stock does not read is garbage
		return
	}
	var udp, stock []byte
	for _, patience := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second} {
		a := c.ask(t, patience, m.data)[0]
		if stock, udp = a[0], a[1]; udp != nil {
			break
		}
	}
	if udp == nil {
		t.Errorf("%s: no answer to a query of %d bytes", m.name, len(m.data))
		return
	}
	if stock != nil && !ordinary(m.data[:stockReads]) && unpack(t, stock).Rcode != dns.RcodeFormatError {
		t.Errorf("%s: stock answers a query of %d bytes: the difference is gone\n%s", m.name, len(m.data), show(stock))
	}
	tcp := askTCP(t, p[0].addr("127.0.0.1"), m.data)
	if diff := sizeDiff(unpack(t, tcp), unpack(t, udp)); diff != "" {
		t.Errorf("%s: %s\nquestion %s\nstock over TCP %s\nfastudp %s", m.name, diff, show(m.data), show(tcp), show(udp))
	}
}

func askTCP(t *testing.T, addr string, msg []byte) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)); err != nil {
		t.Fatal(err)
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		t.Fatalf("stock over TCP: %v\nquestion %s", err, show(msg))
	}
	answer := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// sizeDiff says how an answer over UDP differs from one over TCP for another reason than its size.
func sizeDiff(tcp, udp *dns.Msg) string {
	cut := udp.Truncated
	for _, m := range []*dns.Msg{tcp, udp} {
		m.Id, m.Truncated = 0, false
		if o := m.IsEdns0(); o != nil {
			o.SetUDPSize(0) // for TCP it is 65535 instead of what the client said
		}
	}
	if tcp.MsgHdr != udp.MsgHdr {
		return fmt.Sprintf("header %v, not %v", udp.MsgHdr, tcp.MsgHdr)
	}
	if !slices.Equal(tcp.Question, udp.Question) {
		return "another question"
	}
	for i, sections := range [][2][]dns.RR{{tcp.Answer, udp.Answer}, {tcp.Ns, udp.Ns}, {tcp.Extra, udp.Extra}} {
		var all []string
		for _, rr := range sections[0] {
			all = append(all, rr.String())
		}
		for _, rr := range sections[1] {
			at := slices.Index(all, rr.String())
			if at < 0 {
				return fmt.Sprintf("section %d has %v", i, rr)
			}
			all = slices.Delete(all, at, at+1)
		}
		if len(all) > 0 && !cut {
			return fmt.Sprintf("section %d lacks %v", i, all)
		}
	}
	return ""
}
