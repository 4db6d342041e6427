package faults

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// header is a DNS header with the flags and the counts of questions and other records.
func header(id, flags uint16, counts ...uint16) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint16(b, id)
	binary.BigEndian.PutUint16(b[2:], flags)
	for i, n := range counts {
		binary.BigEndian.PutUint16(b[4+2*i:], n)
	}
	return b
}

// shortQuestions are messages that say little, of all kinds that are answered in different places.
func shortQuestions(t *testing.T) (all [][]byte) {
	t.Helper()
	for opcode := range 16 {
		all = append(all, message(t, opcode, "b", 0), header(0, uint16(opcode)<<11, 1), header(0, uint16(opcode)<<11, 0))
	}
	plain := query("b", 0)
	for n := 13; n < len(plain); n++ {
		all = append(all, plain[:n]) // malformed
	}
	all = append(all, plain, query("", 0), query("big.b", 0), query("panic.b", 0),
		append(slices.Clone(plain), 0), header(0, 0, 1, 1, 1, 1), header(0, 0, 2, 0, 0, 0), header(0, 0, 0xffff, 0xffff, 0xffff, 0xffff))
	for _, version := range []uint8{0, 1} {
		m := new(dns.Msg).SetQuestion("big.b.", dns.TypeTXT)
		m.Id = 0
		m.SetEdns0(700, false)
		m.IsEdns0().SetVersion(version)
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	chaos := slices.Clone(plain)
	chaos[len(chaos)-1] = dns.ClassCHAOS
	return append(all, chaos)
}

// answersOf asks one question after the other; nil is silence.
func answersOf(c net.Conn, questions [][]byte, silence time.Duration) (all [][]byte) {
	for i, q := range questions {
		b := roundTrip(c, withID(q, uint16(0x4000+i)), silence)
		if b != nil {
			b = withID(b, 0)
		}
		all = append(all, b)
	}
	return all
}

func withID(b []byte, id uint16) []byte {
	b = slices.Clone(b)
	binary.BigEndian.PutUint16(b, id)
	return b
}

// canaries are messages full of a mark, long and short, well made and not.
func canaries(t *testing.T, mark []byte) (all [][]byte) {
	t.Helper()
	text := func(n int) string { return string(bytes.Repeat(mark, n/len(mark)+1)[:n]) }
	for _, labels := range [][]int{{8}, {63}, {63, 63, 63, 60}, {60, 63, 63}} {
		for _, first := range []string{"", "big", "panic", "silent"} {
			wire := header(0, 0, 1)
			if first != "" {
				labels = labels[:max(len(labels)-1, 1)]
				wire = append(append(wire, byte(len(first))), first...)
			}
			for _, n := range labels {
				wire = append(append(wire, byte(n)), text(n)...)
			}
			wire = append(wire, 0, 0, byte(dns.TypeTXT), 0, dns.ClassINET)
			all = append(all, wire)
			notify := slices.Clone(wire)
			notify[2] = dns.OpcodeNotify << 3
			all = append(all, notify, wire[:len(wire)-3], append(slices.Clone(wire), text(900)...))
		}
	}
	for _, n := range []int{2, 40, 500, 501, 1000, 3000, 4083, 4084, 4085, 5000, 9000} {
		for opcode := range uint16(16) {
			all = append(all, append(header(0, opcode<<11, 1), text(n)...), append(header(0, opcode<<11, 1, 0, 0, 1), text(n)...))
		}
		all = append(all, append(header(0, 1<<15, 1), text(n)...), []byte(text(min(n, 11))))
	}
	return all
}

// keepSecrets has A's canaries and B's short questions come by turns, n in all. B must hear what stock
// says to it when nobody else asks, no byte else, and neither A nor B more than it has asked for.
func keepSecrets(t *testing.T, reference [][]byte, questions [][]byte, a, b net.Conn, n int) {
	mark := make([]byte, 7)
	for i := range mark {
		mark[i] = byte(0x80 + rand.IntN(0x7f))
	}
	secrets := canaries(t, mark)
	var asked, answered atomic.Int64
	go func() {
		for buf := make([]byte, 65536); ; answered.Add(1) {
			if _, err := a.Read(buf); err != nil {
				return // the test has ended
			}
		}
	}()
	const burst = 8
	open := make(map[uint16]int) // ID to index of the question
	next, missed, buf := 0, 0, make([]byte, 65536)
	for round := 0; 2*burst*round < n; round++ {
		for range burst {
			a.Write(withID(secrets[rand.IntN(len(secrets))], uint16(rand.Uint32())))
			asked.Add(1)
		}
		waiting := 0
		for range burst {
			i := rand.IntN(len(questions))
			if reference[i] == nil {
				continue
			}
			next++
			open[uint16(next)] = i
			waiting++
			b.Write(withID(questions[i], uint16(next)))
		}
		b.SetReadDeadline(time.Now().Add(time.Second))
		for ; waiting > 0; waiting-- {
			m, err := b.Read(buf)
			if err != nil {
				missed += waiting
				break
			}
			got := buf[:m]
			id := binary.BigEndian.Uint16(got)
			i, ok := open[id]
			if !ok {
				t.Fatalf("B gets an answer that it has not asked for: %x", got)
			}
			delete(open, id)
			if bytes.Contains(got, mark[:3]) || bytes.Contains(got, mark[3:6]) {
				t.Fatalf("B asks %x and hears of A's secret %x: %x", questions[i], mark, got)
			}
			if !bytes.Equal(withID(got, 0), reference[i]) {
				t.Fatalf("B asks %x and hears\n%x, not\n%x", questions[i], got, reference[i])
			}
		}
	}
	if missed > n/500 {
		t.Errorf("B misses %d answers of %d", missed, n/2)
	}
	time.Sleep(100 * time.Millisecond)
	t.Logf("%d of A's %d messages are answered, B misses %d of %d", answered.Load(), asked.Load(), missed, next)
	if answered.Load() > asked.Load() || answered.Load() < asked.Load()/10 {
		t.Errorf("A asks %d times and hears %d answers", asked.Load(), answered.Load())
	}
}

// reference has what stock answers to each question, without A.
func reference(t *testing.T, questions [][]byte) [][]byte {
	t.Helper()
	inst, addr := start(t, corefile(""))
	defer stop(inst)
	all := answersOf(dial(t, addr), questions, 300*time.Millisecond)
	answered := 0
	for _, b := range all {
		if b != nil {
			answered++
		}
	}
	if answered < len(questions)/2 {
		t.Fatalf("stock answers %d of %d questions", answered, len(questions))
	}
	return all
}

func TestStrangersSecrets(t *testing.T) {
	questions := shortQuestions(t)
	want := reference(t, questions)
	_, addr := start(t, corefile("fastudp 2 {\n batch 16\n }"))
	keepSecrets(t, want, questions, dial(t, addr), dial(t, addr), many())
}

// unanswerable are datagrams that nobody may answer, by the reason for which fastudp counts them.
func unanswerable(t *testing.T) map[string][][]byte {
	t.Helper()
	all := make(map[string][][]byte)
	plain := query("a.test", 1)
	for n := range 12 {
		all["short"] = append(all["short"], plain[:n])
	}
	for opcode := range uint16(16) {
		for _, b := range [][]byte{plain, header(1, 0), append(slices.Clone(plain), make([]byte, 5000)...)} {
			b = slices.Clone(b)
			binary.BigEndian.PutUint16(b[2:], 1<<15|opcode<<11)
			all["response"] = append(all["response"], b)
		}
	}
	return all
}

// stayQuiet sends what nobody may answer and wants silence, and the next query answered.
func stayQuiet(t *testing.T, c net.Conn) {
	t.Helper()
	for _, all := range unanswerable(t) {
		for _, b := range all {
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Write(query("a.test", 0x7777))
	var got [][]byte
	buf := make([]byte, 65536)
	for limit := patience; ; limit = 200 * time.Millisecond {
		c.SetReadDeadline(time.Now().Add(limit))
		n, err := c.Read(buf)
		if err != nil {
			break
		}
		got = append(got, slices.Clone(buf[:n]))
	}
	if len(got) != 1 || binary.BigEndian.Uint16(got[0]) != 0x7777 {
		t.Errorf("one query among what has no answer gets %d answers: %x", len(got), got)
	}
}

func TestStrangersUnanswerable(t *testing.T) {
	bothHere(t, "fastudp 2", func(t *testing.T, addr string, fast bool) {
		stayQuiet(t, dial(t, addr))
		if !fast {
			return
		}
		for reason, all := range unanswerable(t) {
			if got := metric(t, "fastudp_dropped_total "+reason); got != float64(len(all)) {
				t.Errorf("%v of %d datagrams are counted as %s", got, len(all), reason)
			}
		}
		if got := metric(t, "fastudp_responses_total"); got != 1 {
			t.Errorf("%v responses are counted, not 1", got)
		}
	})
}
