package fastudp

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// quick remembers questions that were answered at once while many others wait for somebody: names in a
// cache, most of the time. When handlers are full of queries to a silent upstream these are let in
// beyond the bound, a few at once.
type quick struct {
	// seen has what was remembered last in each slot, by the key's highest bits, and in the two lowest
	// how often it may be recalled. It is made when needed first; 0 is empty.
	seen atomic.Pointer[[quickSize]atomic.Uint32]
}

const (
	quickSize  = 1 << 15
	quickTries = 3
	quickLimit = 2 * time.Millisecond  // "at once"
	extraLimit = 50 * time.Millisecond // the same for who was so quick before: the machine may be busy
	quickShare = 16                    // beyond max_inflight, one sixteenth of it
)

// quickSeed makes it hard to choose questions that push each other out.
var quickSeed = rand.Uint64() | 1

// questionKey is the same for what a cache takes for the same question: name in whatever case, type,
// class, CD and DO. It is 0 where the name is none or compressed. data has a header at least.
func questionKey(data []byte) uint64 {
	h := quickSeed
	add := func(c byte) { h = (h ^ uint64(c)) * 1099511628211 } // FNV-1a
	rest := data[headerSize:]
	for len(rest) > 0 && rest[0] != 0 {
		if rest[0] > 63 || int(rest[0]) >= len(rest) || len(data)-len(rest) > headerSize+maxName {
			return 0
		}
		label := rest[:rest[0]+1]
		rest = rest[len(label):]
		for _, c := range label {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			add(c)
		}
	}
	if len(rest) < 5 {
		return 0
	}
	for _, c := range rest[:5] { // the root, type and class
		add(c)
	}
	add(data[3] & 0x10)
	if opt := rest[5:]; len(opt) >= optHeader && opt[0] == 0 && opt[1] == 0 && opt[2] == byte(dns.TypeOPT) {
		add(opt[7] & 0x80)
	}
	// The low bits of FNV depend on low bits alone: mix all, as MurmurHash3 ends.
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return h
}

func quickTag(key uint64) uint32 { return uint32(key>>34) << 2 }

// remember notes that the question was answered at once.
func (q *quick) remember(key uint64) {
	if key == 0 {
		return
	}
	seen := q.seen.Load()
	if seen == nil {
		q.seen.CompareAndSwap(nil, new([quickSize]atomic.Uint32))
		seen = q.seen.Load()
	}
	seen[key%quickSize].Store(quickTag(key) | quickTries)
}

// recall says whether it was the last time. It does so a few times until that is remembered anew: a name
// that has left the cache takes the places of a few queries, not of all.
func (q *quick) recall(key uint64) bool {
	seen := q.seen.Load()
	if seen == nil || key == 0 {
		return false
	}
	for slot := &seen[key%quickSize]; ; {
		v := slot.Load()
		if v&^quickTries != quickTag(key) || v&quickTries == 0 {
			return false
		}
		if slot.CompareAndSwap(v, v-1) {
			return true
		}
	}
}
