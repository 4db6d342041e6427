package test

import (
	"testing"

	"github.com/miekg/dns"
)

// TestFairnessCapBelowBatch: no more are served in one turn than the cap says, whatever the batch.
func TestFairnessCapBelowBatch(t *testing.T) {
	inst := start(t, ".:0 {\n bind 127.0.0.1\n fastudp 1 {\n batch 256\n fairness_cap 3\n }\n sleep\n}\n")
	addr := udpAddrs(inst)[0]
	var msgs [][]byte
	for id := range 600 {
		msgs = append(msgs, setID(query("fast.test.", dns.TypeA), uint16(id)))
	}
	if n := answered(pipeline(t, dial(t, addr), msgs, 200, patience)); n != len(msgs) {
		t.Fatalf("%d of %d queries are answered", n, len(msgs))
	}
	if received, reads := total(series(t, "received_total", addr)), total(series(t, "reads_total", addr)); received > 3*reads {
		t.Errorf("%v datagrams in %v reads", received, reads)
	}
}
