package fastudp

import "time"

// recentSeconds is how long a message that gets no answer counts. Handlers that wait for somebody
// else give up before; those that drop a message tell nobody.
const recentSeconds = 10

// recent counts things by the second in which they began, and forgets them after recentSeconds.
type recent struct {
	clock  func() time.Time // time.Now if nil
	last   int64
	counts [recentSeconds]int
	total  int
}

// now is the slot of what begins now. What has grown too old no longer counts.
func (r *recent) now() int64 {
	clock := r.clock
	if clock == nil {
		clock = time.Now
	}
	t := clock().Unix()
	for s := max(r.last+1, t-recentSeconds+1); s <= t; s++ {
		r.total -= r.counts[s%recentSeconds]
		r.counts[s%recentSeconds] = 0
	}
	r.last = max(r.last, t)
	return r.last
}

func (r *recent) add(slot int64) {
	r.counts[slot%recentSeconds]++
	r.total++
}

// remove takes back what add has counted in slot, unless it is forgotten.
func (r *recent) remove(slot int64) {
	if r.now()-slot < recentSeconds {
		r.counts[slot%recentSeconds]--
		r.total--
	}
}
