package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/fastudp/fastudp/conformance/counts"
)

// killAfter is how much longer than its time-out a test may take to say where it hangs.
const killAfter = 10 * time.Second

// runner runs the tests one after the other: many use fixed ports.
type runner struct {
	opts   options
	output string // directory for the output of each try
	counts string // directory for what fastudp received
}

func (r *runner) run(ctx context.Context, plan []pair) ([]result, error) {
	results := make([]result, 0, len(plan))
	for i, p := range plan {
		res, err := r.compare(ctx, p)
		if err != nil {
			return nil, err
		}
		results = append(results, res)
		fmt.Fprintf(os.Stderr, "[%*d/%d] %s %s: stock %s, fastudp %s, %d received\n", len(fmt.Sprint(len(plan))),
			i+1, len(plan), p.pkg, p.test, res.stock, res.fast, res.fast.received)
	}
	return results, nil
}

// compare tries the test in turn with and without fastudp, each until it succeeds: what makes a test
// fail now and then gets the same number of chances in both.
func (r *runner) compare(ctx context.Context, p pair) (result, error) {
	res := result{pkg: p.pkg, test: p.test}
	for range r.opts.tries {
		for _, side := range []struct {
			name   string
			binary binary
			sum    *outcome
		}{{"stock", p.stock, &res.stock}, {"fastudp", p.fast, &res.fast}} {
			if side.sum.verdict.good() {
				continue
			}
			side.sum.tries++
			name := fmt.Sprintf("%s.%s.%s.%d", strings.ReplaceAll(p.pkg, "/", "_"), p.test, side.name, side.sum.tries)
			if err := r.try(ctx, side.binary, p.test, name, side.sum); err != nil {
				return res, err
			}
		}
	}
	return res, nil
}

// try runs the test once and adds to sum. An error is not the test's.
func (r *runner) try(ctx context.Context, b binary, test, name string, sum *outcome) error {
	received := filepath.Join(r.counts, name)
	for _, dir := range []string{r.output, received} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(ctx, r.opts.timeout+killAfter)
	defer cancel()
	cmd := b.command(limited, "-test.run", "^"+regexp.QuoteMeta(test)+"$", "-test.count=1", "-test.v",
		"-test.timeout", r.opts.timeout.String())
	cmd.Env = append(os.Environ(), counts.Env+"="+received)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output

	started := time.Now()
	failure := cmd.Run()
	sum.took = time.Since(started)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failure != nil {
		endGroup(cmd) // what the test started may still hold its ports
		fmt.Fprintf(&output, "%v\n", failure)
	}
	sum.output = output.String()
	sum.verdict = judge(test, sum.output, failure)
	if r.opts.verbose && !sum.verdict.good() {
		fmt.Fprintf(os.Stderr, "%s:\n%s", name, sum.output)
	}
	n, err := counts.Sum(received)
	if err != nil {
		return err
	}
	sum.received += n
	return os.WriteFile(filepath.Join(r.output, name), output.Bytes(), 0o644)
}

// command prepares a run in a process group of its own, which is killed as a whole when ctx is done:
// some tests start processes.
func (b binary) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Dir = b.dir
	cmd.WaitDelay = time.Second
	ownGroup(cmd)
	return cmd
}
