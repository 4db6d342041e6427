package test

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/fastudp/fastudp/internal/rootzone"

	"github.com/miekg/dns"
)

const rootLike = "../zones/root-like.zone"

// TestZoneAnswersAreStocks asks every question of a zone in the shape of the root.
func TestZoneAnswersAreStocks(t *testing.T) {
	zone, err := os.Open(rootLike)
	if err != nil {
		t.Fatal(err)
	}
	defer zone.Close()
	questions, err := rootzone.Questions(zone)
	if err != nil {
		t.Fatal(err)
	}
	if len(questions) < 5000 {
		t.Fatalf("%d questions: is the zone whole?", len(questions))
	}
	var msgs [][]byte
	for _, q := range questions {
		for _, do := range []bool{false, true} {
			m := new(dns.Msg).SetQuestion(q.Name, q.Type)
			if do {
				m.SetEdns0(1232, true)
			}
			b, err := m.Pack()
			if err != nil {
				t.Fatal(err)
			}
			msgs = append(msgs, b)
		}
	}
	var answers [][][]byte
	variants(t, fmt.Sprintf(".:0 {\n bind 127.0.0.1\n fastudp 2\n file %s\n}\n", rootLike), func(t *testing.T, corefile string) {
		inst := start(t, corefile)
		window := 64
		if raceDetector {
			window = 1 // the file plugin of CoreDNS 1.15.0 has a race of its own: queries append to one slice
		}
		got := pipeline(t, dial(t, udpAddrs(inst)[0]), msgs, window, patience)
		if n := answered(got); n != len(msgs) {
			t.Fatalf("%d of %d questions are answered", n, len(msgs))
		}
		answers = append(answers, got)
	})
	if len(answers) != 2 {
		return
	}
	different, records := 0, 0
	for i := range msgs {
		m := new(dns.Msg)
		if err := m.Unpack(answers[1][i]); err != nil {
			t.Fatal(err)
		}
		records += len(m.Answer) + len(m.Ns)
		if bytes.Equal(answers[0][i], answers[1][i]) {
			continue
		}
		if different++; different <= 3 {
			q := new(dns.Msg)
			q.Unpack(msgs[i])
			t.Errorf("%s:\nstock   %x\nfastudp %x", q.Question[0].String(), answers[0][i], answers[1][i])
		}
	}
	if different > 0 {
		t.Errorf("%d of %d answers differ", different, len(msgs))
	}
	if records < len(msgs) {
		t.Errorf("%d records in %d answers: was the zone loaded?", records, len(msgs))
	}
}
