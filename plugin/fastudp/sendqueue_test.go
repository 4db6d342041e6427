package fastudp

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func testReply(id int) *reply {
	r := newReply()
	r.buf, r.peer = appendTestQuery(r.buf[:0], id, 0), testPeer(id)
	return r
}

// testQueue is a queue on a fake socket that notes what goes out in order, and whose sends wait for
// the test when gated.
func testQueue(t *testing.T, batch int, gated bool) (q *sendQueue, sent *[]int, gate chan struct{}) {
	f := newFakeIO(t, 1)
	sent = new([]int)
	f.sent = func(id int) { *sent = append(*sent, id) } // by one sender at a time
	gate = make(chan struct{})
	if gated {
		f.stall = func(int) { <-gate }
	}
	return newSendQueue(f, new(counters), batch), sent, gate
}

func wantInOrder(t *testing.T, sent []int, n int) {
	t.Helper()
	if len(sent) != n {
		t.Fatalf("%d responses sent, want %d", len(sent), n)
	}
	for i, id := range sent {
		if id != i {
			t.Fatalf("response %d is number %d: %v", id, i, sent)
		}
	}
}

// TestQueueDraining leaves the responses of a batch to the reader, but no more than one system call's worth.
func TestQueueDraining(t *testing.T) {
	q, sent, _ := testQueue(t, 4, false)
	q.draining.Store(true)
	for id := range 3 {
		q.add(testReply(id))
	}
	wantInOrder(t, *sent, 0)
	q.add(testReply(3))
	wantInOrder(t, *sent, 4)
	q.add(testReply(4))
	wantInOrder(t, *sent, 4)
	q.draining.Store(false)
	q.flush()
	wantInOrder(t, *sent, 5)
	q.add(testReply(5))
	wantInOrder(t, *sent, 6)
}

// TestQueueBound has more writers than the queue holds behind a send that the kernel blocks: never
// more than the limit wait in it, the other writers wait themselves, and nothing is lost.
func TestQueueBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, batch := range []int{1, 64, 1024} {
			q, sent, gate := testQueue(t, batch, true)
			limit := max(4*batch, 1024)
			go q.add(testReply(0)) // becomes the flusher
			synctest.Wait()
			var through atomic.Int64
			var writers sync.WaitGroup
			for id := 1; id <= 3*limit; id++ {
				writers.Go(func() {
					if err := q.add(testReply(id)); err != nil {
						t.Errorf("response %d: %v", id, err)
					}
					through.Add(1)
				})
			}
			for left := 3 * limit; left > 0; left -= limit {
				synctest.Wait()
				q.mu.Lock()
				if len(q.pending) != limit {
					t.Errorf("%d responses wait in a queue of %d", len(q.pending), limit)
				}
				q.mu.Unlock()
				if n := int(through.Load()); n > 3*limit-left+limit {
					t.Errorf("%d writers are through with %d responses sent", n, len(*sent))
				}
				gate <- struct{}{}
			}
			synctest.Wait()
			close(gate)
			writers.Wait()
			synctest.Wait()
			once := make(map[int]bool)
			for _, id := range *sent {
				once[id] = true
			}
			if len(*sent) != 3*limit+1 || len(once) != 3*limit+1 {
				t.Errorf("%d responses sent, %d different ones, want %d", len(*sent), len(once), 3*limit+1)
			}
		}
	})
}

// TestQueueRoom holds the reader back while half of the queue waits behind a blocked send, and only then.
func TestQueueRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, sent, gate := testQueue(t, 1, true)
		q.waitRoom() // nothing to wait for
		go q.add(testReply(0))
		synctest.Wait()
		half := q.limit / 2
		for id := 1; id < half; id++ {
			q.add(testReply(id))
		}
		q.waitRoom() // room enough
		q.add(testReply(half))
		var passed atomic.Bool
		go func() {
			q.waitRoom()
			passed.Store(true)
		}()
		synctest.Wait()
		if passed.Load() {
			t.Fatal("the reader goes on with half of the queue waiting")
		}
		gate <- struct{}{} // the first send is done, the second takes all that waited
		synctest.Wait()
		if !passed.Load() {
			t.Fatal("the reader waits though the queue is empty")
		}
		close(gate)
		synctest.Wait()
		wantInOrder(t, *sent, half+1)
	})
}

// TestReaderHeldBack checks the same on an engine: with the kernel's send buffer full it stops reading
// before a response is dropped, and reads on when there is room.
func TestReaderHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		b := newBlockable(func(int) bool { return false })
		e, f := blockedEngine(t, b, 64, 0)
		gate := make(chan struct{})
		f.stall = func(int) { <-gate }
		go e.out.add(testReply(n)) // stuck in the kernel
		synctest.Wait()
		f.arrive(numbers(0, n)...)
		synctest.Wait()
		if left := f.queued(); left < n-e.out.limit {
			t.Errorf("the reader took %d messages while nothing could be sent", n-left)
		}
		close(gate)
		synctest.Wait()
		b.want(t, n+1, true)
	})
}

// TestQueueClosed refuses responses after close, forgets those that wait, and lets go of a reader and
// a writer that are held back.
func TestQueueClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, sent, gate := testQueue(t, 1, true)
		go q.add(testReply(0))
		synctest.Wait()
		for id := 1; id <= q.limit; id++ {
			q.add(testReply(id))
		}
		var passed atomic.Bool
		go func() {
			q.waitRoom()
			passed.Store(true)
		}()
		var late error
		go func() { late = q.add(testReply(9999)) }()
		synctest.Wait()
		q.close()
		if err := q.add(testReply(1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("add after close: %v", err)
		}
		synctest.Wait()
		if !passed.Load() {
			t.Error("the reader is still held back")
		}
		if !errors.Is(late, net.ErrClosed) {
			t.Errorf("a writer that waited for room gets %v", late)
		}
		close(gate)
		synctest.Wait()
		wantInOrder(t, *sent, 1)
	})
}

// TestQueueSocketGone closes the queue when the socket is gone.
func TestQueueSocketGone(t *testing.T) {
	f := newFakeIO(t, 1)
	q := newSendQueue(f, new(counters), 1)
	f.close()
	q.add(testReply(0))
	if err := q.add(testReply(1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("add to a socket that is gone: %v", err)
	}
}

// TestQueueRace has a writer and a reader meet in every order, with no third to help: when both are
// through, the response is out.
func TestQueueRace(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	const rounds = 300_000
	until := time.Now().Add(time.Second)
	var sent atomic.Int64
	q := newSendQueue(countIO{new(fakeIO), &sent}, new(counters), 64)
	var begun, ended atomic.Int64
	var sink atomic.Int64
	delay := func(n int64) {
		for range n {
			sink.Add(1)
		}
	}
	spin := func(done func() bool) {
		for n := 1; !done(); n++ {
			if n%100 == 0 {
				runtime.Gosched()
			}
		}
	}
	go func() {
		for round := int64(1); ; round++ {
			spin(func() bool { return begun.Load() != round-1 })
			if begun.Load() < 0 {
				return
			}
			delay(round % 23)
			q.add(testReply(int(round)))
			ended.Store(round)
		}
	}()
	for round := int64(1); round <= rounds; round++ {
		q.draining.Store(true)
		begun.Store(round)
		delay(round % 29)
		q.draining.Store(false)
		q.flush()
		spin(func() bool { return ended.Load() == round })
		if sent.Load() != round {
			t.Fatalf("round %d: the response lies in the queue", round)
		}
		if round%100 == 0 && time.Now().After(until) {
			break
		}
	}
	begun.Store(-1)
}

type countIO struct {
	*fakeIO
	n *atomic.Int64
}

func (c countIO) send(rs []*reply) error {
	c.n.Add(int64(len(rs)))
	return nil
}

// TestQueueWriters has many writers and no reader: each response goes out once, those of one writer
// in their order.
func TestQueueWriters(t *testing.T) {
	const writers, each = 8, 500
	f := newFakeIO(t, 1)
	var last [writers]int
	sent := 0
	f.sent = func(id int) {
		w, n := id/each, id%each
		if n != last[w] {
			t.Errorf("response %d of writer %d after %d", n, w, last[w]-1)
		}
		last[w] = n + 1
		sent++
	}
	q := newSendQueue(f, new(counters), 64)
	q.limit = writers * each
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				q.add(testReply(w*each + n))
			}
		})
	}
	wg.Wait()
	if sent != writers*each {
		t.Errorf("%d of %d responses sent", sent, writers*each)
	}
	if q.flushing || len(q.pending) != 0 {
		t.Errorf("flushing %v, %d pending, after all writers are through", q.flushing, len(q.pending))
	}
}

// TestReplyMemory keeps no response's memory beyond keepReply.
func TestReplyMemory(t *testing.T) {
	big := &reply{buf: make([]byte, 0, keepReply+1)}
	big.free()
	for range 100 {
		if r := newReply(); r == big {
			t.Fatal("a buffer that is too large to keep came back")
		}
	}
}

// TestQueueRelay keeps the queue filled: who began to send goes on with his own work after a bounded
// number of responses, and another goroutine sends the rest.
func TestQueueRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, sent, gate := testQueue(t, 4, false)
		id, left := 1, 3*q.limit
		q.io.(*fakeIO).stall = func(int) {
			if len(*sent) >= q.limit {
				<-gate
			}
			if left > 0 {
				// As many come while these are sent.
				for range 4 {
					q.mu.Lock()
					q.pending = append(q.pending, testReply(id))
					q.mu.Unlock()
					id++
				}
				left -= 4
			}
		}
		q.add(testReply(0))
		if n := len(*sent); n < q.limit || n > q.limit+8 {
			t.Errorf("the writer sent %d responses, want about %d", n, q.limit)
		}
		close(gate)
		synctest.Wait()
		wantInOrder(t, *sent, id)
	})
}

// TestQueuePromise has many writers ready to run at once, as when an upstream's answers come: they
// share system calls, and each response goes out once.
func TestQueuePromise(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const n = 300
		q, sent, _ := testQueue(t, 64, false)
		calls := 0
		q.io.(*fakeIO).stall = func(int) { calls++ }
		start := make(chan struct{})
		for id := range n {
			go func() {
				<-start
				q.add(testReply(id))
			}()
		}
		synctest.Wait()
		close(start)
		synctest.Wait()
		if len(*sent) != n || calls > n/10 {
			t.Errorf("%d responses sent of %d, in %d calls", len(*sent), n, calls)
		}
		q.add(testReply(n)) // alone
		if len(*sent) != n+1 {
			t.Error("a single response is not sent at once")
		}
	})
}
