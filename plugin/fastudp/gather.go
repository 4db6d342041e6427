package fastudp

// gatherer is a packetIO that can wait for more datagrams without being woken by the first.
type gatherer interface {
	// canGather says whether the system can sleep for so short a time.
	canGather() bool
	// gather sleeps for some 100 us.
	gather()
}

// To be woken for a few queries at a time can cost more than to answer them. So a reader that finds
// several at once although it answers as fast as they come, which takes more than stock CoreDNS could
// answer, gathers for a while: when its queue is empty it sleeps a little before it waits.
const (
	gatherLeast = 3    // queries a read
	gatherTest  = 64   // queries to measure that with
	gatherRun   = 1024 // queries until it is measured again
	gatherPrice = 8    // messages that a gather counts for in the fairness cap
)

// arrivals tells whether to gather. It belongs to the reader.
type arrivals struct {
	n, reads int // measured
	left     int // to gather
}

// add notes a read of n queries, gathered or not.
func (a *arrivals) add(n int, gathered bool) {
	if a.left > 0 {
		if a.left -= n; gathered && n < gatherLeast {
			a.left = 0
		}
		return
	}
	a.n += n
	a.reads++
	if a.n >= gatherTest {
		if a.n >= gatherLeast*a.reads {
			a.left = gatherRun
		}
		a.n, a.reads = 0, 0
	}
}
