package fastudp

import (
	"slices"
	"testing"
	"time"
)

// TestGatherSleeps measures how long gathers take: a signal may end a few early, and a busy machine a few late.
func TestGatherSleeps(t *testing.T) {
	const times = 100
	m, took := new(mmsgIO), make([]time.Duration, times)
	for i := range took {
		start := time.Now()
		m.gather()
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	if median := took[times/2]; median < gatherFor {
		t.Errorf("the median of %d gathers is %v, want %v and more", times, median, gatherFor)
	}
	if least := took[times/10]; m.canGather() != (least < time.Millisecond) {
		t.Errorf("canGather() is %v, a tenth of the gathers took at most %v", m.canGather(), least)
	}
}
