package fastudp

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Responses of one length to one client leave as one message that the kernel cuts up again after it
// has taken the whole way down for it (UDP_SEGMENT, udp(7)).

const (
	maxSegments  = 64    // UDP_MAX_SEGMENTS of the kernels that know the option
	maxSegmented = 64000 // all segments together make one IP packet at first
	maxSegment   = 1232  // a segment must fit into the path's MTU, and IPv6's least is 1280
	lastPlaces   = 512   // as many as hashPeer has values
	placeTries   = 8
	minGroup     = 8   // fewer responses at once are not worth a look
	skipNothing  = 15  // sends without a look after one that found nothing
	skipRefused  = 255 // and after one that the way there did not take, perhaps for its MTU
)

// grouping finds the responses of one send that can leave together.
type grouping struct {
	sorted []*reply // by message, then by segment
	parts  []int    // responses in each message

	last  [lastPlaces]int16 // by client: the message that takes its responses, plus 1; 0 is free
	head  []int16           // by message: its first response
	tail  []int16
	size  []int   // by message: octets of all its segments
	next  []int16 // by response: the one that follows in its message, or -1
	skip  int     // sends to come without a look
	never bool    // the kernel does not know of segments and would send all as one datagram
}

func newGrouping(n int) *grouping {
	return &grouping{
		sorted: make([]*reply, 0, n), parts: make([]int, 0, n),
		head: make([]int16, n), tail: make([]int16, n), size: make([]int, n), next: make([]int16, n),
	}
}

// worthwhile says whether to look for groups among n responses.
func (g *grouping) worthwhile(n int) bool {
	if n < minGroup || g.never {
		return false
	}
	if g.skip > 0 {
		g.skip--
		return false
	}
	return true
}

// single has every response be a message of its own.
func (g *grouping) single(rs []*reply) {
	g.sorted = append(g.sorted[:0], rs...)
	g.parts = g.parts[:0]
	for range rs {
		g.parts = append(g.parts, 1)
	}
}

// group fills sorted and parts from rs.
func (g *grouping) group(rs []*reply) {
	clear(g.last[:])
	g.parts = g.parts[:0]
	for i, r := range rs {
		g.next[i] = -1
		place, k := g.find(rs, &r.peer)
		if k >= 0 && g.fits(k, rs[g.head[k]], r) {
			g.next[g.tail[k]] = int16(i)
			g.tail[k] = int16(i)
			g.parts[k]++
			g.size[k] += len(r.buf)
			if len(r.buf) < len(rs[g.head[k]].buf) {
				g.size[k] = maxSegmented // only the last segment may be shorter
			}
			continue
		}
		k = len(g.parts)
		g.parts = append(g.parts, 1)
		g.head[k], g.tail[k], g.size[k] = int16(i), int16(i), len(r.buf)
		*place = int16(k + 1)
	}
	if len(g.parts) == len(rs) {
		g.skip = skipNothing
	}
	g.sorted = g.sorted[:0]
	for k := range g.parts {
		for i := g.head[k]; i >= 0; i = g.next[i] {
			g.sorted = append(g.sorted, rs[i])
		}
	}
}

// find returns the client's place and its message, or -1 and the place for it. Where other clients have
// all places that it might have, one of them loses its own, and begins another message if it comes again.
func (g *grouping) find(rs []*reply, client *peer) (place *int16, k int) {
	h := hashPeer(client)
	for try := range uint(placeTries) {
		place = &g.last[(h+try)%lastPlaces]
		if *place == 0 {
			return place, -1
		}
		if k = int(*place) - 1; rs[g.head[k]].peer == *client {
			return place, k
		}
	}
	return place, -1
}

// fits says whether r can be one more segment of message k, which begins with first.
func (g *grouping) fits(k int, first, r *reply) bool {
	return len(r.buf) > 0 && len(r.buf) <= len(first.buf) && len(first.buf) <= maxSegment &&
		g.parts[k] < maxSegments && g.size[k]+len(r.buf) <= maxSegmented
}

// hashPeer gives 9 bits.
func hashPeer(p *peer) uint {
	b := p.addr.Addr().As16()
	h := binary.LittleEndian.Uint64(b[8:]) ^ uint64(p.addr.Port())<<48
	return uint(h * 0x9E3779B97F4A7C15 >> 55)
}

// segmentSpace holds the control message that gives the segments' size.
var segmentSpace = unix.CmsgSpace(2)
