package fastudp

import (
	"maps"
	"math/bits"
	"sync"
	"sync/atomic"
)

// counters are those of one socket. They are summed at scrape; nothing on the hot path is shared
// between sockets.
type counters struct {
	_        [128]byte     // no other object shares the cache lines, of which a processor fetches two at once
	received atomic.Uint64 // datagrams
	reads    sizes         // successful receives, by their datagrams
	sent     atomic.Uint64 // responses that the kernel took
	sends    sizes         // system calls for them, by their responses
	waits    atomic.Uint64 // the kernel's send buffer was full
	pauses   atomic.Uint64 // the fairness cap was reached
	standbys atomic.Uint64 // workers readied
	spawned  atomic.Uint64 // workers started
	peak     atomic.Int64  // most queries in handlers; the reader alone writes it
	drops    [numDrops]atomic.Uint64
	unusual  [numUnusual]atomic.Uint64

	mu       sync.Mutex
	sendErrs map[string]uint64 // by the name of the error
	recvErrs map[string]uint64
	_        [128]byte
}

// sizes counts batches by how many messages they had: 1, 2, up to 4, up to 8 and so on to MaxBatch.
type sizes [11]atomic.Uint64

func (s *sizes) add(n int) { s[bits.Len(uint(n-1))].Add(1) }

// upTo has the batches of at most so many messages, and all of them.
func (s *sizes) upTo() (buckets map[float64]uint64, all uint64) {
	buckets = make(map[float64]uint64)
	for i := range s {
		all += s[i].Load()
		buckets[float64(int(1)<<i)] = all
	}
	return buckets, all
}

// look samples the queries in handlers for their peak. The reader does so when a batch has been taken:
// then all that came is in handlers or has left them, and nobody counts anything for each query.
func (c *counters) look(inflight int64) {
	if inflight > c.peak.Load() {
		c.peak.Store(inflight)
	}
}

// drop is a reason for which a datagram gets no answer.
type drop int

const (
	dropInflight drop = iota // max_inflight queries are in handlers
	dropShort                // shorter than a DNS header
	dropResponse             // a response, not a query
	dropProxy                // no or a bad PROXY header, or nothing behind it
	dropUnusual              // the path for unusual messages is full
	dropPanic                // no parser survives it
	numDrops
)

func (d drop) String() string {
	return [numDrops]string{"inflight", "short", "response", "proxy", "unusual", "panic"}[d]
}

// unusual is a reason for which a message takes the stock path.
type unusual int

const (
	unusualOpcode    unusual = iota // not QUERY
	unusualCounts                   // more or fewer records than an ordinary query has
	unusualMalformed                // does not unpack
	unusualTSIG
	unusualLong // longer than maxQuery
	numUnusual
)

func (u unusual) String() string {
	return [numUnusual]string{"opcode", "counts", "malformed", "tsig", "long"}[u]
}

func (c *counters) sendError(name string, n int) {
	c.mu.Lock()
	if c.sendErrs == nil {
		c.sendErrs = make(map[string]uint64)
	}
	c.sendErrs[name] += uint64(n)
	c.mu.Unlock()
}

func (c *counters) recvError(name string) {
	c.mu.Lock()
	if c.recvErrs == nil {
		c.recvErrs = make(map[string]uint64)
	}
	c.recvErrs[name]++
	c.mu.Unlock()
}

// errors are copies, so that who counts never waits for who reads.
func (c *counters) errors() (sends, receives map[string]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.sendErrs), maps.Clone(c.recvErrs)
}
