package fastudp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

func TestQuestionKey(t *testing.T) {
	key := func(name string, qtype uint16) uint64 {
		return questionKey(wire(t, new(dns.Msg).SetQuestion(name, qtype)))
	}
	seen := make(map[uint64]string)
	for _, name := range []string{".", "a.", "b.", "a.b.", "ab.", "a.example.", "b.example.", strings.Repeat("x.", 120)} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeNS} {
			k := key(name, qtype)
			if other, ok := seen[k]; ok {
				t.Errorf("%s %d has the key of %s", name, qtype, other)
			}
			seen[k] = name
			if key(strings.ToUpper(name), qtype) != k {
				t.Errorf("%s has another key in capitals", name)
			}
		}
	}
	// What cache keeps apart.
	variant := func(change func(m *dns.Msg)) uint64 {
		m := new(dns.Msg).SetQuestion("a.example.", dns.TypeA)
		change(m)
		return questionKey(wire(t, m))
	}
	plain := key("a.example.", dns.TypeA)
	if variant(func(m *dns.Msg) { m.SetEdns0(512, true) }) == plain || variant(func(m *dns.Msg) { m.CheckingDisabled = true }) == plain {
		t.Error("DO or CD is not in the key")
	}
	if variant(func(m *dns.Msg) { m.SetEdns0(512, true) }) != variant(func(m *dns.Msg) { m.SetEdns0(4096, true) }) {
		t.Error("the buffer size is in the key")
	}
	compressed := append(wire(t, new(dns.Msg).SetQuestion(".", dns.TypeA))[:headerSize], 0xC0, 4, 0, 1, 0, 1)
	if questionKey(compressed) != 0 {
		t.Error("a key for a name that is not read")
	}
	for _, data := range append(ordinaryMessages(t), otherMessages(t)...) {
		for n := headerSize; n <= len(data); n++ {
			questionKey(data[:n:n]) // must not read beyond
		}
	}
}

func TestQuick(t *testing.T) {
	var q quick
	const key = 7 + 1<<60
	if q.recall(key) {
		t.Error("recalled from nothing")
	}
	q.remember(0)
	if q.recall(0) {
		t.Error("remembered without a key")
	}
	q.remember(key)
	if q.recall(key + 1<<50) {
		t.Error("recalled for another question")
	}
	for i := range quickTries {
		if !q.recall(key) {
			t.Errorf("not recalled after %d times", i)
		}
	}
	if q.recall(key) {
		t.Error("recalled for ever")
	}
}

// TestQuickWhenFull fills all places with queries that wait. Questions that were answered at once while
// they filled are still answered, others are dropped, and those that wait now take the extra places only.
func TestQuickWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound = 160
		slow := func(id int) bool { return id >= 1000 }
		b := newBlockable(func(id int) bool { return slow(id) })
		e, f := blockedEngine(t, b, 16, bound)
		ask := func(ids ...int) {
			f.arrive(ids...)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		answers := func(id int) int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.answered[id]
		}
		ask(numbers(1000, 1050)...) // more than half of the socket's own part of the bound
		ask(numbers(0, 20)...)      // quick
		ask(numbers(1050, 1000+2*bound)...)
		if n := e.inflight(); n != bound {
			t.Fatalf("%d queries in handlers, want %d", n, bound)
		}
		for round := range 3 {
			ask(numbers(0, 20)...)
			for id := range 20 {
				if n := answers(id); n != round+2 {
					t.Fatalf("quick question %d has %d answers when handlers are full, want %d", id, n, round+2)
				}
			}
		}
		ask(20, 1050)
		if answers(20) != 0 || e.inflight() != bound {
			t.Error("a question that was never answered at once is let in")
		}
		b.mu.Lock()
		b.blocks = func(id int) bool { return slow(id) || id < 20 }
		b.mu.Unlock()
		ask(numbers(0, 20)...)
		if n := e.inflight(); n != bound+bound/quickShare {
			t.Errorf("%d queries in handlers, want %d and a sixteenth", n, bound)
		}
		b.mu.Lock()
		b.blocks = slow
		for id, c := range b.blocked {
			if !slow(id) {
				close(c)
				delete(b.blocked, id)
			}
		}
		b.mu.Unlock()
		synctest.Wait()
		ask(numbers(0, 20)...) // as before: a test message's name says where in its batch it was
		for id := 10; id < 20; id++ {
			if n := answers(id); n < 5 {
				t.Errorf("question %d, which found no extra place, is forgotten: %d answers", id, n)
			}
		}
		b.release()
		synctest.Wait()
		if n := e.inflight(); n != 0 {
			t.Errorf("%d queries left in the count", n)
		}
	})
}
