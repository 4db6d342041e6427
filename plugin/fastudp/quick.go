package fastudp

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// quick remembers questions that were answered at once while many others wait for somebody: names in a
// cache, most of the time. When handlers are full of queries to a silent upstream these are let in
// beyond the bound, a few at once.
type quick struct {
	seen atomic.Pointer[[quickSize]atomic.Uint32] // made when needed first; 0 is empty
}

const (
	quickSize  = 1 << 15
	quickLimit = 2 * time.Millisecond
	quickShare = 16 // beyond max_inflight, one sixteenth of it
)

// quickSeed makes it hard to choose questions that push each other out.
var quickSeed = rand.Uint64() | 1

// questionKey is the same for the same question whatever the case of its letters. data is a message of
// which nothing is known but that it has a header.
func questionKey(data []byte) uint64 {
	h := quickSeed
	add := func(c byte) { h = (h ^ uint64(c)) * 1099511628211 } // FNV-1a
	rest := data[headerSize:]
	for len(rest) > 0 && rest[0] != 0 && rest[0] < 64 && int(rest[0]) < len(rest) {
		label := rest[:rest[0]+1]
		rest = rest[len(label):]
		for _, c := range label {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			add(c)
		}
	}
	for _, c := range rest[:min(len(rest), 5)] { // the root, type and class
		add(c)
	}
	// The low bits of FNV depend on low bits alone: mix all, as MurmurHash3 ends.
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	return h
}

// remember notes that the question was answered at once.
func (q *quick) remember(key uint64) {
	seen := q.seen.Load()
	if seen == nil {
		q.seen.CompareAndSwap(nil, new([quickSize]atomic.Uint32))
		seen = q.seen.Load()
	}
	seen[key%quickSize].Store(uint32(key>>32) | 1)
}

// recall says whether it was the last time, and forgets it until it is again: a name that has left the
// cache takes the place of one query, not of all.
func (q *quick) recall(key uint64) bool {
	seen := q.seen.Load()
	return seen != nil && seen[key%quickSize].CompareAndSwap(uint32(key>>32)|1, 0)
}
