package fastudp

import (
	"encoding/binary"
	"sync"
)

// nameTable has where in a message a name or the end of one is, for pointers to it: by hash, the next
// free place if another has that; 0 is free.
type nameTable struct {
	places [maxPlaces]uint16
	known  int
	// Of the name that is added: where in it labels begin, the last first, and the hashes of its ends from there.
	labels [maxName / 2]uint8
	hashes [maxName / 2]uint32
}

const maxPlaces = 256

var nameTables = sync.Pool{New: func() any { return new(nameTable) }}

func (t *nameTable) reset() {
	clear(t.places[:])
	t.known = 0
}

// add remembers name s, which buf has in full at start, and its ends. If compress is set and an end is
// known, to is where that is and begin where it begins in s, and what follows is not remembered.
// False says that there are too many names.
func (t *nameTable) add(buf []byte, s string, start int, compress bool) (begin, to int, ok bool) {
	n, h := 0, uint32(2166136261)
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '.' && i < len(s)-1 {
			t.labels[n], t.hashes[n] = uint8(i+1), h
			n++
		}
		h = (h ^ uint32(s[i])) * 16777619 // FNV-1a, backwards
	}
	t.labels[n], t.hashes[n] = 0, h
	for k := n; k >= 0; k-- {
		begin = int(t.labels[k])
		place, known := t.find(buf, t.hashes[k], s[begin:])
		switch {
		case known && compress:
			return begin, int(t.places[place]), true
		case !known && start+begin < maxPackPointer:
			if t.known++; t.known > maxPlaces/2 {
				return 0, 0, false
			}
			t.places[place] = uint16(start + begin)
		}
	}
	return 0, 0, true
}

// find returns the place of name s, or the one that is free for it.
func (t *nameTable) find(buf []byte, hash uint32, s string) (place uint32, known bool) {
	for place = (hash ^ hash>>16) % maxPlaces; t.places[place] != 0; place = (place + 1) % maxPlaces {
		if nameAt(buf, int(t.places[place]), s) {
			return place, true
		}
	}
	return place, false
}

// nameAt says whether the name that buf has at off is s.
func nameAt(buf []byte, off int, s string) bool {
	for {
		n := int(buf[off])
		switch {
		case n == 0:
			return s == ""
		case n > maxLabel:
			off = int(binary.BigEndian.Uint16(buf[off:])) &^ packPointer
			continue
		case len(s) <= n || s[n] != '.' || string(buf[off+1:off+1+n]) != s[:n]:
			return false
		}
		off += 1 + n
		s = s[n+1:]
	}
}
