package main

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestTestNames(t *testing.T) {
	got := testNames("TestA\nExample_b\nFuzzC\nBenchmarkD\nok  \tpkg\t0.1s\n\n")
	if want := []string{"TestA", "Example_b", "FuzzC"}; !slices.Equal(got, want) {
		t.Errorf("names are %q, want %q", got, want)
	}
}

// script is a test binary: a shell script that runs in its own directory.
func script(t *testing.T, text string) binary {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "tests")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return binary{path: path, dir: dir}
}

func newRunner(t *testing.T, tries int) *runner {
	work := t.TempDir()
	return &runner{opts: options{tries: tries, timeout: time.Minute}, output: filepath.Join(work, "output"), counts: filepath.Join(work, "counts")}
}

func TestCompareTriesInTurn(t *testing.T) {
	// Each run leaves its name in a file that both share; stock fails once, fastudp always.
	log := filepath.Join(t.TempDir(), "log")
	stock := script(t, "echo stock >>"+log+"\n[ -e again ] || { touch again; exit 1; }\necho '--- PASS: TestA (0.00s)'\n")
	fast := script(t, "echo fast >>"+log+"\nprintf 2 >$FASTUDP_CONFORMANCE_COUNTS/1\necho broken\nexit 1\n")
	res, err := newRunner(t, 3).compare(t.Context(), pair{"pkg", "TestA", stock, fast})
	if err != nil {
		t.Fatal(err)
	}
	if res.stock.verdict != passed || res.stock.tries != 2 {
		t.Errorf("stock is %s, want it to pass the second time", res.stock)
	}
	if res.fast.verdict != failed || res.fast.tries != 3 || res.fast.output != "broken\nexit status 1\n" {
		t.Errorf("fastudp is %s with output %q, want it to fail three times", res.fast, res.fast.output)
	}
	if res.fast.received != 6 || res.stock.received != 0 {
		t.Errorf("received %d and %d, want 6 with fastudp alone", res.fast.received, res.stock.received)
	}
	order, err := os.ReadFile(log)
	if want := "stock\nfast\nstock\nfast\nfast\n"; err != nil || string(order) != want {
		t.Errorf("order is %q, %v, want %q", order, err, want)
	}
}

func TestTryHasNoMercy(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs process groups")
	}
	// The test fails and leaves a process behind, which may hold a port.
	b := script(t, "while sleep 0.01; do echo >>alive; done >/dev/null 2>&1 &\nsleep 0.1\nexit 1\n")
	var sum outcome
	if err := newRunner(t, 1).try(t.Context(), b, "TestA", "a", &sum); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(b.dir, "alive"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	time.Sleep(200 * time.Millisecond)
	if after := size(); after != before {
		t.Error("what the test started is still there")
	}
}
