package fastudp

import (
	"fmt"
	"runtime"
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
	received []uint64 // by socket
	kernel   []uint64 // by socket
	inflight uint64
	unusual  uint64
	panics   uint64
	sends    map[string]uint64 // by the name of the error
	receives map[string]uint64
	room     string // what makes a receive queue longer
}

func (l *listener) losses() losses {
	n := losses{sends: make(map[string]uint64), receives: make(map[string]uint64), room: l.room()}
	for _, e := range l.engines {
		drops, _, _ := kernelQueue(e.io.conn())
		n.kernel = append(n.kernel, drops)
		n.received = append(n.received, e.count.received.Load())
		n.inflight += e.count.drops[dropInflight].Load()
		n.unusual += e.count.drops[dropUnusual].Load()
		n.panics += e.count.drops[dropPanic].Load()
		sends, receives := e.count.errors()
		for name, k := range sends {
			n.sends[name] += k
		}
		for name, k := range receives {
			n.receives[name] += k
		}
	}
	return n
}

// room says what makes a receive queue longer: to ask for more than the system grants would not.
func (l *listener) room() string {
	asked := l.opts.buffers().read
	got, ok := bufferSize(l.engines[0].io.conn(), readBuffer)
	switch {
	case !ok:
		return fmt.Sprintf("read_buffer (%d bytes asked)", asked)
	case got < asked:
		return fmt.Sprintf("the system's limit for read_buffer (%s, which grants %d bytes of %d)", readBuffer.limit(), got, asked)
	}
	return fmt.Sprintf("read_buffer (%d bytes now)", got)
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
		return fmt.Sprintf("the kernel dropped %d queries because a receive queue was full: %s, or raise %s", lost, power(len(n.kernel)), n.room)
	})
	tell("inflight", n.inflight, func(lost uint64) string {
		return fmt.Sprintf("%d queries were dropped at the bound, max_inflight %d: see whether an upstream is slow, or raise max_inflight", lost, w.opts.MaxInflight)
	})
	tell("unusual", n.unusual, func(lost uint64) string {
		return fmt.Sprintf("%d messages that are not ordinary queries were dropped because too many of them wait for the stock server: see coredns_fastudp_unusual_total for their kind, keep their senders out, or raise max_inflight", lost)
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
			return fmt.Sprintf("reading failed %d times: %s%s", times, name, hint(name))
		})
	}
	w.last = n
	slices.Sort(lines)
	return lines
}

// power says what has so many sockets read faster.
func power(sockets int) string {
	if cpus := runtime.GOMAXPROCS(0); sockets < cpus {
		return fmt.Sprintf("raise SOCKETS (%d now, for %d CPUs)", sockets, cpus)
	}
	return fmt.Sprintf("give the process more CPUs than %d if it has none left", runtime.GOMAXPROCS(0))
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

// hint says what an error means and what helps.
func hint(name string) string {
	switch name {
	case "EINVAL":
		return " (source port 0, as forged queries have, or the address they came to has left this host)"
	case "EPERM":
		return " (a packet filter, or its connection table is full: let responses pass without tracking)"
	case "EACCES":
		return " (a broadcast address, or a route that forbids it: nobody can be answered there)"
	case "ENOBUFS":
		return " (the interface's transmit queue is full: raise its txqueuelen)"
	case "ENOMEM":
		return " (the kernel is short of memory)"
	case "EMSGSIZE":
		return " (longer than the way to the client takes: lower what clients may ask for with the bufsize plugin)"
	case "ENETDOWN", "ENODEV":
		return " (the interface is down)"
	}
	if strings.HasSuffix(name, "UNREACH") {
		return " (no route to the client: see the routing table)"
	}
	return ""
}

func sum(ns []uint64) (total uint64) {
	for _, n := range ns {
		total += n
	}
	return total
}
