package fastudp

import (
	"sync"
	"sync/atomic"
)

// counters are those of one socket. They are summed at scrape; nothing on the hot path is shared
// between sockets.
type counters struct {
	_        [128]byte     // no other object shares the cache lines, of which a processor fetches two at once
	received atomic.Uint64 // datagrams
	reads    atomic.Uint64 // successful receives, each of one or more datagrams
	sent     atomic.Uint64 // responses that the kernel took
	sends    atomic.Uint64 // system calls for them
	pauses   atomic.Uint64 // the fairness cap was reached
	standbys atomic.Uint64 // workers readied
	spawned  atomic.Uint64 // workers started
	drops    [numDrops]atomic.Uint64
	unusual  [numUnusual]atomic.Uint64

	mu       sync.Mutex
	sendErrs map[string]uint64 // by the name of the error
	recvErrs map[string]uint64
	_        [128]byte
}

// drop is a reason for which a datagram gets no answer.
type drop int

const (
	dropInflight drop = iota // max_inflight queries are in handlers
	dropShort                // shorter than a DNS header
	dropResponse             // a response, not a query
	dropProxy                // no or a bad PROXY header
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
