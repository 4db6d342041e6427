package same

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzSame sends the same datagram to both and compares what comes back.
func FuzzSame(f *testing.F) {
	// One of each kind: the fuzzer measures the coverage of each seed first, which takes it long.
	seen := make(map[string]bool)
	for _, m := range corpus(time.Now()) {
		if kind := kindOf(m.name); !seen[kind] && len(m.data) <= longest {
			seen[kind] = true
			f.Add(m.data)
		}
	}
	q := &quick{client: newClient(f, startPair(f, richCorefile(f)))}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > maxDatagram || wanted(data) {
			return
		}
		q.check(t, data)
	})
}

// kindOf is the first words of a message's name, without numbers.
func kindOf(name string) string {
	words := strings.Fields(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, name))
	return strings.Join(words[:min(len(words), 3)], " ")
}

// quick asks without waiting long for silence: a question that has an answer follows each message,
// and what has not come soon after its answer is taken for silence. An answer that comes later
// nevertheless has its question asked again, with patience.
type quick struct {
	*client
	asked [16]struct {
		id   uint16
		data []byte
	}
	next int
}

var alive = pack(question("alive.who.test.", 1))

// grace is how much longer than an answered question a message may take until it counts as silence.
const grace = 3 * time.Millisecond

func (q *quick) check(t *testing.T, data []byte) {
	var suspects [][]byte
	late := func(b []byte) {
		if id, ok := answerID(b); ok {
			for _, a := range q.asked {
				if a.id == id && a.data != nil {
					suspects = append(suspects, a.data)
				}
			}
		}
	}
	id, aliveID := q.nextID(), q.nextID()
	for _, m := range [][]byte{withID(data, id), withID(alive, aliveID)} {
		if err := q.send(m); err != nil {
			t.Fatalf("send %d bytes: %v", len(m), err)
		}
	}
	wait := grace
	if len(data) < 12 || data[2]&0x80 != 0 {
		wait /= 10 // nobody should answer these at all
	}
	var answers [2][]byte
	up := 0
	for end := time.Now().Add(time.Second); ; {
		v, b, err := q.receive(end)
		if err != nil {
			break
		}
		switch got, _ := answerID(b); {
		case got == id && answers[v] == nil:
			answers[v] = slices.Clone(b)
		case got == id:
			t.Fatalf("%s answers twice:\nquestion %x\nanswers %x\nand %x", variants[v], data, answers[v], b)
		case got == aliveID:
			up++
		default:
			late(b)
		}
		if up == 2 && answers[0] != nil && answers[1] != nil {
			break
		}
		if up == 2 && answers[0] == nil && answers[1] == nil {
			end = time.Now().Add(wait)
		}
	}
	if !equal(answers) || up < 2 { // or the machine is too busy to tell
		suspects = append(suspects, data)
	}
	q.asked[q.next].id, q.asked[q.next].data = id, slices.Clone(data)
	q.next = (q.next + 1) % len(q.asked)
	for _, s := range suspects {
		q.same(t, "fuzz", s)
	}
}
