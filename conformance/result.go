package main

import (
	"fmt"
	"strings"
	"time"
)

// result is what became of a test.
type result struct {
	pkg, test   string
	stock, fast outcome
}

// broken says whether fastudp is what makes the test fail, or not run.
func (r *result) broken() bool { return r.stock.verdict == passed && r.fast.verdict != passed }

// outcome is a test with or without fastudp: verdict, output and took are of the last try.
type outcome struct {
	verdict  verdict
	tries    int
	took     time.Duration
	output   string
	received uint64 // through fastudp, in all tries
}

func (o outcome) String() string {
	s := fmt.Sprintf("%s %.1fs", o.verdict, o.took.Seconds())
	if o.tries > 1 {
		s += fmt.Sprintf(" (%d tries)", o.tries)
	}
	return s
}

type verdict int

const (
	failed verdict = iota
	passed
	skipped // by itself
)

func (v verdict) good() bool { return v != failed }

func (v verdict) String() string { return [...]string{"FAILED", "ok", "skipped"}[v] }

// judge reads the output of a verbose run. The status alone does not tell a test that ran from one
// that skipped itself, nor from none at all.
func judge(test, output string, failure error) verdict {
	switch {
	case failure != nil:
		return failed
	case strings.Contains(output, "--- SKIP: "+test+" ("):
		return skipped
	case strings.Contains(output, "--- PASS: "+test+" ("):
		return passed
	}
	return failed
}
