package fastudp

import (
	"encoding/binary"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestLateClaim has batches of changing length follow each other as fast as can be while workers that
// were elsewhere come back: none takes an index of one batch for a message of another.
func TestLateClaim(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{2, 4} {
		runtime.GOMAXPROCS(procs)
		const batch = 64
		io := &rushIO{fail: t.Errorf, until: time.Now().Add(400 * time.Millisecond)}
		packets := newPackets(batch)
		served := make([]atomic.Int64, batch) // by slot, how often
		io.given = make([]int64, batch)
		e := newEngine(io, Options{Batch: batch, FairnessCap: 1 << 30}, nil, packets, new(counters), func(e *engine, p *packet) {
			slot, n := binary.BigEndian.Uint32(p.data), binary.BigEndian.Uint32(p.data[4:])
			if int64(n) != served[slot].Add(1) {
				io.broken.Store(true)
			}
			e.took()
			if n%3 == 0 {
				runtime.Gosched()
			}
		})
		e.start()
		awaitStop(t, e)
		for i := range served {
			if served[i].Load() != io.given[i] {
				t.Errorf("GOMAXPROCS %d: slot %d was filled %d times and served %d times", procs, i, io.given[i], served[i].Load())
			}
		}
		if io.broken.Load() {
			t.Errorf("GOMAXPROCS %d: a message was served twice, or not in its batch", procs)
		}
	}
}

// rushIO always has messages.
type rushIO struct {
	fail   func(format string, args ...any)
	until  time.Time
	rounds uint32
	given  []int64 // by slot, how often it was filled
	broken atomic.Bool
}

func (r *rushIO) receive(ps []packet, _ bool) (int, bool, error) {
	if r.rounds++; r.broken.Load() || (r.rounds%100 == 0 && time.Now().After(r.until)) {
		return 0, false, net.ErrClosed
	}
	n := 1
	if r.rounds%2 == 0 {
		n = 2 + int(r.rounds/2)%(len(ps)-1)
	}
	for i := range n {
		r.given[i]++
		b := binary.BigEndian.AppendUint32(ps[i].data[:0], uint32(i))
		ps[i].data = binary.BigEndian.AppendUint32(b, uint32(r.given[i]))
	}
	return n, false, nil
}

func (r *rushIO) send([]*reply) error { return nil }
func (r *rushIO) pause()              {}
func (r *rushIO) interrupt()          {}
func (r *rushIO) detach()             {}
func (r *rushIO) conn() *net.UDPConn  { return nil }
func (r *rushIO) close()              {}
