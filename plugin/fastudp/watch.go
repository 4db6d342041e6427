package fastudp

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A listener looks now and then whether queries or responses were lost, and says so with the remedy,
// once a minute at most for each kind of loss. Nothing on the way of a query logs.
var watchPeriod = 10 * time.Second

const tellPeriod = time.Minute

func (l *listener) watch(period time.Duration) {
	w := &watcher{name: l.name(), opts: l.opts, told: make(map[string]telling)}
	w.begin(l.losses())
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			for _, line := range w.look(now, l.losses()) {
				log.Warning(line)
			}
			l.steer()
		case <-l.finished:
			return
		}
	}
}

// losses are a listener's counters that a warning is made from.
type losses struct {
	received    []uint64 // by socket
	kernel      []uint64 // by socket
	inflight    uint64
	unusual     uint64
	panics      uint64
	sends       map[string]uint64 // by the name of the error
	receives    map[string]uint64
	bufferBytes string
}

func (l *listener) losses() losses {
	n := losses{sends: make(map[string]uint64), receives: make(map[string]uint64), bufferBytes: l.buffer(readBuffer)}
	for _, e := range l.engines {
		drops, _, _ := kernelQueue(e.io.conn())
		n.kernel = append(n.kernel, drops)
		n.received = append(n.received, e.count.received.Load())
		n.inflight += e.count.drops[dropInflight].Load()
		n.unusual += e.count.drops[dropUnusual].Load()
		n.panics += e.count.drops[dropPanic].Load()
		e.count.mu.Lock()
		for name, k := range e.count.sendErrs {
			n.sends[name] += k
		}
		for name, k := range e.count.recvErrs {
			n.receives[name] += k
		}
		e.count.mu.Unlock()
	}
	return n
}

// watcher compares a listener's losses with those that it has told of.
type watcher struct {
	name string
	opts Options
	last losses
	told map[string]telling
}

type telling struct {
	total uint64
	at    time.Time
}

// begin takes n as told: a socket that was handed over keeps the kernel's count.
func (w *watcher) begin(n losses) {
	w.last = n
	w.told["kernel"] = telling{total: sum(n.kernel)}
}

// look returns what is to be said at now.
func (w *watcher) look(now time.Time, n losses) (lines []string) {
	tell := func(kind string, total uint64, say func(lost uint64) string) {
		t := w.told[kind]
		if total > t.total && now.Sub(t.at) >= tellPeriod {
			lines = append(lines, w.name+": "+say(total-t.total))
			w.told[kind] = telling{total, now}
		}
	}
	tell("kernel", sum(n.kernel), func(lost uint64) string {
		if busy, ok := uneven(w.last, n); ok && w.opts.Steer != SteerRandom {
			return fmt.Sprintf("the kernel dropped %d queries because the receive queue of socket %d was full while other sockets are idle: steer random spreads a busy client over all", lost, busy)
		}
		return fmt.Sprintf("the kernel dropped %d queries because a receive queue was full: raise read_buffer (%s now) or SOCKETS (%d now)", lost, n.bufferBytes, len(n.kernel))
	})
	tell("inflight", n.inflight, func(lost uint64) string {
		return fmt.Sprintf("%d queries were dropped because %d were in handlers: see whether an upstream is slow, or raise max_inflight", lost, w.opts.MaxInflight)
	})
	tell("unusual", n.unusual, func(lost uint64) string {
		return fmt.Sprintf("%d messages that are not ordinary queries were dropped because too many of them wait: see coredns_fastudp_unusual_total for their kind", lost)
	})
	tell("panic", n.panics, func(lost uint64) string {
		return fmt.Sprintf("%d messages made the parser panic and were dropped: please report them", lost)
	})
	for name, total := range n.sends {
		tell("send "+name, total, func(lost uint64) string {
			return fmt.Sprintf("the kernel refused to send %d responses: %s%s", lost, name, hint(name))
		})
	}
	for name, total := range n.receives {
		tell("receive "+name, total, func(times uint64) string {
			return fmt.Sprintf("reading failed %d times: %s", times, name)
		})
	}
	w.last = n
	slices.Sort(lines)
	return lines
}

// uneven finds the socket that dropped most between two looks, and says whether another one received
// less than a tenth of what it did.
func uneven(was, is losses) (busy int, ok bool) {
	if len(was.kernel) != len(is.kernel) {
		return 0, false
	}
	worst := uint64(0)
	for i := range is.kernel {
		if d := is.kernel[i] - was.kernel[i]; d > worst {
			busy, worst = i, d
		}
	}
	for i := range is.received {
		if worst > 0 && (is.received[i]-was.received[i])*10 < is.received[busy]-was.received[busy] {
			return busy, true
		}
	}
	return 0, false
}

func hint(name string) string {
	switch {
	case name == "EINVAL":
		return " (source port 0?)"
	case name == "EPERM":
		return " (a packet filter?)"
	case name == "ENOBUFS":
		return " (the interface's transmit queue is full)"
	case strings.HasSuffix(name, "UNREACH"):
		return " (no route to the client)"
	}
	return ""
}

func sum(ns []uint64) (total uint64) {
	for _, n := range ns {
		total += n
	}
	return total
}
