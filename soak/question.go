package main

import (
	"encoding/binary"
	"strconv"

	"github.com/fastudp/fastudp/internal/load"
)

// appendQuestion appends a query for the A record of label.zone to b; zone is in wire format.
func appendQuestion(b []byte, label, zone string) []byte {
	b = append(b, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, byte(len(label)))
	b = append(b, label...)
	b = append(b, zone...)
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, 1)
	return binary.BigEndian.AppendUint16(b, 1)
}

const testZone = "\x04test"

func whoamiQuestion() [][]byte { return [][]byte{appendQuestion(nil, "whoami", testZone)} }

// names are n questions for prefix0.test. and so on.
func names(prefix string, n int) [][]byte {
	var qs [][]byte
	for i := range n {
		qs = append(qs, appendQuestion(nil, prefix+strconv.Itoa(i), testZone))
	}
	return qs
}

// distinct makes a question that was never asked before.
func distinct(prefix string) func(uint64, []byte) []byte {
	return func(n uint64, b []byte) []byte {
		return appendQuestion(b, prefix+strconv.FormatUint(n, 36), testZone)
	}
}

// perSecond is how many were answered.
func perSecond(r load.Result) float64 { return float64(r.Answered) / r.Elapsed.Seconds() }
