package fastudp

import (
	"testing"
	"time"
)

// TestGatherSleeps measures the least that gathers take, where a signal may end a few early.
func TestGatherSleeps(t *testing.T) {
	const times = 20
	start := time.Now()
	for range times {
		new(mmsgIO).gather()
	}
	if took, want := time.Since(start), times/2*gatherFor; took < want {
		t.Errorf("%d gathers took %v, want %v and more", times, took, want)
	}
}
