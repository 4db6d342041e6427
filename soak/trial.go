package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// trial is one run of a scenario, with stock or with fastudp.
type trial struct {
	ctx context.Context
	scenario
	fast bool
	exe  string
	race bool
	dir  string

	server   *server
	figures  []figure
	promises int
	broken   []string
	surgeEnd time.Time
	text     strings.Builder // printed after the table
}

type figure struct{ name, value string }

func (t *trial) who() string {
	if t.fast {
		return "fastudp"
	}
	return "stock"
}

func (t *trial) figure(name, format string, args ...any) {
	t.figures = append(t.figures, figure{name, fmt.Sprintf(format, args...)})
}

// promise records whether one was kept; what says it with the figures.
func (t *trial) promise(kept bool, what string, args ...any) {
	t.promises++
	if !kept {
		t.broken = append(t.broken, fmt.Sprintf(what, args...))
	}
}

// do runs the scenario, ends its server and looks at what that has logged.
func (t *trial) do() error {
	err := t.run(t)
	if t.server == nil {
		return err
	}
	stopped := t.server.Stop()
	log := t.server.Log()
	t.promise(stopped == nil, "the server ends when it is told to: %v", stopped)
	for _, bad := range []string{"panic:", "fatal error:", "DATA RACE", "Recovered from panic"} {
		t.promise(!strings.Contains(log, bad), "no %q in the log:\n%s", bad, after(log, bad, 4000))
	}
	if err != nil {
		fmt.Fprintf(&t.text, "The end of its log:\n\n~~~\n%s\n~~~\n", log[max(0, len(log)-2000):])
		return fmt.Errorf("%s: %w", t.who(), err)
	}
	return t.ctx.Err()
}

func after(s, sep string, n int) string {
	i := max(0, strings.Index(s, sep))
	return s[i:min(len(s), i+n)]
}

func (t *trial) verdict() error {
	if len(t.broken) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d promises are broken:\n  %s", len(t.broken), t.promises, strings.Join(t.broken, "\n  "))
}

// sleep waits, unless the program is told to end.
func (t *trial) sleep(d time.Duration) {
	select {
	case <-t.ctx.Done():
	case <-time.After(d):
	}
}

// report is a table of the figures of both and what else they have to say.
func report(stock, fast *trial) string {
	var b strings.Builder
	b.WriteString("| | stock | fastudp |\n|---|---|---|\n")
	names := order(stock.figures, fast.figures)
	for _, n := range names {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", n, value(stock.figures, n), value(fast.figures, n))
	}
	fmt.Fprintf(&b, "| promises kept | %d of %d | %d of %d |\n", stock.promises-len(stock.broken), stock.promises, fast.promises-len(fast.broken), fast.promises)
	for _, t := range []*trial{stock, fast} {
		if t.text.Len() > 0 {
			fmt.Fprintf(&b, "\n%s:\n\n%s", t.who(), t.text.String())
		}
		for _, p := range t.broken {
			fmt.Fprintf(&b, "\n%s breaks a promise: %s\n", t.who(), p)
		}
	}
	return b.String()
}

// order is the names of a and then those that b alone has, each where b has it.
func order(a, b []figure) []string {
	var names []string
	seen := map[string]bool{}
	for _, f := range a {
		for len(b) > 0 && value(a, b[0].name) == "" {
			names, seen[b[0].name], b = append(names, b[0].name), true, b[1:]
		}
		if !seen[f.name] {
			names, seen[f.name] = append(names, f.name), true
		}
		if len(b) > 0 && b[0].name == f.name {
			b = b[1:]
		}
	}
	for _, f := range b {
		if !seen[f.name] {
			names, seen[f.name] = append(names, f.name), true
		}
	}
	return names
}

func value(fs []figure, name string) string {
	for _, f := range fs {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

func mib(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }

var numbers = regexp.MustCompile(`[0-9]+`)

// kinds counts log lines by what they say, numbers left out.
func kinds(log string) map[string]int {
	n := make(map[string]int)
	for line := range strings.Lines(log) {
		if line = strings.TrimSpace(line); line != "" {
			n[numbers.ReplaceAllString(line, "#")]++
		}
	}
	return n
}
