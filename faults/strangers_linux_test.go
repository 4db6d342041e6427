package faults

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestStrangersSingle is TestStrangersSecrets and TestStrangersUnanswerable where each datagram takes a call.
func TestStrangersSingle(t *testing.T) {
	questions := shortQuestions(t)
	want := reference(t, questions)
	c := newChild(t)
	c.must(t, order{Do: "refuse", Refuse: []refusal{{Call: unix.SYS_RECVMMSG, Errno: unix.ENOSYS}}})
	c.start(t, block("fastudp 2", "prometheus"))
	stayQuiet(t, c.dial(t, oneAddress))
	m := c.look(t).Metrics
	for reason, all := range unanswerable(t) {
		if got := m["fastudp_dropped_total "+reason]; got != float64(len(all)) {
			t.Errorf("%v of %d datagrams are counted as %s", got, len(all), reason)
		}
	}
	keepSecrets(t, want, questions, c.dial(t, oneAddress), c.dial(t, oneAddress), many())
}
