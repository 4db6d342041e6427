package fastudp

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
)

// reply is one response on its way out.
type reply struct {
	buf  []byte
	peer peer
}

// Most responses fit; a longer one brings its own buffer, which is kept up to keepReply bytes.
const (
	replySize = 2048
	keepReply = 16 << 10
)

var replies = sync.Pool{New: func() any { return &reply{buf: make([]byte, 0, replySize)} }}

func newReply() *reply { return replies.Get().(*reply) }

func (r *reply) free() {
	if cap(r.buf) <= keepReply {
		replies.Put(r)
	}
}

// sendQueue holds the responses of one socket until its one flusher sends them. Who appends waits for
// the kernel only if it finds no flusher and becomes it, or if the flusher has fallen far behind.
type sendQueue struct {
	io    packetIO
	count *counters
	batch int // so many are worth a system call of their own
	limit int // so many may be pending; who brings more waits, as for a full send buffer with stock

	// draining says that a reader will flush when its batch is done. The reader clears it and then
	// flushes; a writer appends and then looks: one of the two sees the other.
	draining atomic.Bool

	mu       sync.Mutex
	room     sync.Cond // a flusher has taken what was pending
	pending  []*reply
	spare    []*reply
	flushing bool
	promised bool // a writer is about to flush
	closed   bool
	_        [128]byte // as in counters
}

func newSendQueue(io packetIO, count *counters, batch int) *sendQueue {
	q := &sendQueue{io: io, count: count, batch: batch, limit: max(4*batch, 1024)}
	q.room.L = &q.mu
	return q
}

// add queues r, which the queue then owns, and sees to it that somebody sends it.
func (q *sendQueue) add(r *reply) error {
	q.mu.Lock()
	for len(q.pending) >= q.limit && q.flushing && !q.closed {
		q.room.Wait()
	}
	if q.closed {
		q.mu.Unlock()
		r.free()
		return net.ErrClosed
	}
	q.pending = append(q.pending, r)
	switch {
	case len(q.pending) >= q.batch:
		q.mu.Unlock()
		q.flush()
	case q.promised || q.draining.Load():
		q.mu.Unlock()
	default:
		// What waited for an upstream often comes in droves: those that are ready to run add to the
		// same system call. Somebody who flushes meanwhile takes all.
		q.promised = true
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
		q.promised = false
		if !q.flushing {
			q.flushing = true
			q.drain()
		}
		q.mu.Unlock()
	}
	return nil
}

// flush sends what is pending, unless somebody is at it: he sends ours too.
func (q *sendQueue) flush() {
	q.mu.Lock()
	if q.flushing || len(q.pending) == 0 {
		q.mu.Unlock()
		return
	}
	q.flushing = true
	q.drain()
	q.mu.Unlock()
}

// drain is the flusher's work; the caller holds q.mu.
func (q *sendQueue) drain() {
	for sent := 0; len(q.pending) > 0; {
		if sent >= q.limit {
			// He may be a handler with more to do: somebody else goes on for the others.
			go func() {
				q.mu.Lock()
				q.drain()
				q.mu.Unlock()
			}()
			return
		}
		out := q.pending
		sent += len(out)
		q.pending, q.spare = q.spare[:0], nil
		q.room.Broadcast()
		q.mu.Unlock()

		err := q.io.send(out)
		for i, r := range out {
			r.free()
			out[i] = nil
		}

		q.mu.Lock()
		q.spare = out[:0]
		if err != nil {
			q.closed = true
		}
	}
	q.flushing = false
	q.room.Broadcast()
}

// waitRoom is the back-pressure on the reader: it returns when no flusher is stuck with a full queue behind it.
func (q *sendQueue) waitRoom() {
	q.mu.Lock()
	for q.flushing && len(q.pending) >= q.limit/2 {
		q.room.Wait()
	}
	q.mu.Unlock()
}

// wait returns when nobody sends any more, a relay neither, or ctx ends.
func (q *sendQueue) wait(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		q.room.Broadcast()
		q.mu.Unlock()
	})
	defer stop()
	q.mu.Lock()
	for (q.flushing || q.promised) && ctx.Err() == nil {
		q.room.Wait()
	}
	q.mu.Unlock()
}

// close refuses what comes later. What is pending has been sent or never will be.
func (q *sendQueue) close() {
	q.mu.Lock()
	q.closed = true
	if n := len(q.pending); n > 0 {
		q.count.sendError("closed", n)
	}
	for i, r := range q.pending {
		r.free()
		q.pending[i] = nil
	}
	q.pending = q.pending[:0]
	q.room.Broadcast()
	q.mu.Unlock()
}
