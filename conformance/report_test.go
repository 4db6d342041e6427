package main

import (
	"errors"
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name, output string
		failure      error
		want         verdict
	}{
		{"passes", "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n", nil, passed},
		{"fails", "--- FAIL: TestA (0.00s)\nFAIL\n", errors.New("exit status 1"), failed},
		{"dies", "", errors.New("signal: killed"), failed},
		{"fails after it passed", "--- PASS: TestA (0.00s)\n", errors.New("exit status 2"), failed},
		{"skips itself", "--- SKIP: TestA (0.00s)\nPASS\n", nil, skipped},
		{"a subtest skips itself", "--- PASS: TestA (0.00s)\n    --- SKIP: TestA/b (0.00s)\nPASS\n", nil, passed},
		{"was not run", "testing: warning: no tests to run\nPASS\n", nil, failed},
		{"another was run", "--- PASS: TestAB (0.00s)\nPASS\n", nil, failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := judge("TestA", tc.output, tc.failure); got != tc.want {
				t.Errorf("verdict is %s, want %s", got, tc.want)
			}
		})
	}
}

func res(pkg, test string, stock, fast verdict, received uint64) result {
	return result{pkg: pkg, test: test, stock: outcome{verdict: stock, tries: 1},
		fast: outcome{verdict: fast, tries: 1, received: received, output: "says " + test + "\n"}}
}

func TestReport(t *testing.T) {
	for _, tc := range []struct {
		name    string
		results []result
		differ  []string
		ok      bool
		last    string
		has     []string
		hasNot  []string
	}{
		{
			name:    "all is well",
			results: []result{res("a", "TestOne", passed, passed, 3), res("b", "TestTwo", passed, passed, 0)},
			ok:      true, last: "2 passed, 0 failed",
			has:    []string{"received at least 3 messages, in 1 of 2 tests", "total"},
			hasNot: []string{"Fail", "says", "Modules"},
		},
		{
			name:    "fastudp breaks a test",
			results: []result{res("a", "TestOne", passed, passed, 3), res("a", "TestTwo", passed, failed, 1)},
			ok:      false, last: "1 passed, 1 failed",
			has:    []string{"Pass with stock, not with fastudp:\n  a TestTwo", "says TestTwo"},
			hasNot: []string{"says TestOne"},
		},
		{
			name:    "fastudp makes a test skip itself",
			results: []result{res("a", "TestOne", passed, skipped, 3)},
			ok:      false, last: "0 passed, 1 failed",
			has: []string{"Pass with stock, not with fastudp:\n  a TestOne"},
		},
		{
			name: "what stock fails is not fastudp's fault",
			results: []result{res("a", "TestOne", failed, failed, 3), res("a", "TestTwo", failed, passed, 0),
				res("a", "TestThree", skipped, skipped, 0)},
			ok: true, last: "1 passed, 0 failed",
			has: []string{"Fail in both:\n  a TestOne", "Fail with stock only:\n  a TestTwo", "Skip themselves in both:\n  a TestThree"},
		},
		{
			name:    "nothing received",
			results: []result{res("a", "TestOne", passed, passed, 0)},
			ok:      false, last: "1 passed, 0 failed",
			has: []string{"nothing was tested"},
		},
		{
			name:    "other modules",
			results: []result{res("a", "TestOne", passed, passed, 1)},
			differ:  []string{"example.org/m v1.0.0, with fastudp v1.1.0"},
			ok:      true, last: "1 passed, 0 failed",
			has: []string{"Modules that differ: example.org/m v1.0.0"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := report{results: tc.results, differ: tc.differ}
			if r.ok() != tc.ok {
				t.Errorf("ok is %t, want %t", r.ok(), tc.ok)
			}
			var out strings.Builder
			if err := r.write(&out); err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(out.String(), "\n"+tc.last+"\n") {
				t.Errorf("the last line is not %q:\n%s", tc.last, out.String())
			}
			for _, s := range tc.has {
				if !strings.Contains(out.String(), s) {
					t.Errorf("no %q in\n%s", s, out.String())
				}
			}
			for _, s := range tc.hasNot {
				if strings.Contains(out.String(), s) {
					t.Errorf("%q in\n%s", s, out.String())
				}
			}
		})
	}
}

func TestRows(t *testing.T) {
	flaky := res("a", "TestFlaky", passed, passed, 2)
	flaky.stock.tries = 3
	r := report{results: []result{flaky, res("a", "TestSkip", skipped, skipped, 0), res("b", "TestBad", passed, failed, 5)}}
	rows, total := r.rows()
	want := []row{{"a", 2, 1, 1, 1, 2}, {"b", 1, 0, 1, 0, 5}}
	if len(rows) != len(want) || rows[0] != want[0] || rows[1] != want[1] {
		t.Errorf("rows are %+v, want %+v", rows, want)
	}
	if want := (row{"total", 3, 1, 2, 1, 7}); total != want {
		t.Errorf("total is %+v, want %+v", total, want)
	}
	var out strings.Builder
	if err := r.write(&out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "TestFlaky: stock ok 0.0s (3 tries), fastudp ok") {
		t.Errorf("the flaky test is not named:\n%s", out.String())
	}
}

func TestExcerpt(t *testing.T) {
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 2, ""},
		{"a\nb\n", 2, "a\nb"},
		{"a\nb\nc\n", 2, "b\nc"},
		{"a\nb\npanic: c\nd\ne\nf\n", 4, "a\nb\npanic: c\nd"},
		{"a\npanic: c\n", 4, "a\npanic: c"},
	} {
		if got := excerpt(tc.in, tc.n); got != tc.want {
			t.Errorf("excerpt(%q, %d) is %q, want %q", tc.in, tc.n, got, tc.want)
		}
	}
}
