package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// shownLines is how much of the output of a test that fails is shown.
const shownLines = 40

type report struct {
	results []result
	differ  []string // modules that the copies do not have in the same version
}

// row is a line of the table.
type row struct {
	pkg                        string
	tests, skipped, stock, now int
	received                   uint64
}

func (r *row) add(res *result) {
	r.tests++
	if res.stock.verdict == skipped && res.fast.verdict == skipped {
		r.skipped++
	}
	if res.stock.verdict == passed {
		r.stock++
	}
	if res.fast.verdict == passed {
		r.now++
	}
	r.received += res.fast.received
}

// rows returns the table, a row for each package in the order of the results, and the sum.
func (r *report) rows() (rows []row, total row) {
	total.pkg = "total"
	for i := range r.results {
		res := &r.results[i]
		if len(rows) == 0 || rows[len(rows)-1].pkg != res.pkg {
			rows = append(rows, row{pkg: res.pkg})
		}
		rows[len(rows)-1].add(res)
		total.add(res)
	}
	return rows, total
}

func (r *report) broken() (list []*result) {
	return r.filter(func(res *result) bool { return res.broken() })
}

func (r *report) filter(want func(*result) bool) (list []*result) {
	for i := range r.results {
		if want(&r.results[i]) {
			list = append(list, &r.results[i])
		}
	}
	return list
}

// ok says whether fastudp broke nothing, and was there to break something.
func (r *report) ok() bool {
	_, total := r.rows()
	return total.received > 0 && len(r.broken()) == 0
}

func (r *report) write(w io.Writer) error {
	var out bytes.Buffer
	rows, total := r.rows()
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "package\ttests\tskip themselves\tstock pass\tfastudp pass\treceived through fastudp\t")
	for _, row := range append(rows, total) {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t\n", row.pkg, row.tests, row.skipped, row.stock, row.now, row.received)
	}
	tw.Flush()

	with := r.filter(func(res *result) bool { return res.fast.received > 0 })
	fmt.Fprintf(&out, "\nfastudp received at least %d messages, in %d of %d tests.\n", total.received, len(with), total.tests)
	if total.received == 0 {
		fmt.Fprintln(&out, "So nothing was tested: the directive is not in the Corefiles, or the listener is the stock one.")
	}
	if len(r.differ) > 0 {
		fmt.Fprintf(&out, "\nModules that differ: %s\n", strings.Join(r.differ, ", "))
	}

	list(&out, "Skip themselves in both", r.filter(func(res *result) bool {
		return res.stock.verdict == skipped && res.fast.verdict == skipped
	}))
	list(&out, "Not steady, passed after more than one try", r.filter(func(res *result) bool {
		return res.stock.verdict.good() && res.stock.tries > 1 || res.fast.verdict.good() && res.fast.tries > 1
	}))
	list(&out, "Fail in both", r.filter(func(res *result) bool {
		return res.stock.verdict == failed && res.fast.verdict == failed
	}))
	list(&out, "Fail with stock only", r.filter(func(res *result) bool {
		return res.stock.verdict == failed && res.fast.verdict != failed
	}))

	broken := r.broken()
	list(&out, "Pass with stock, not with fastudp", broken)
	for _, res := range broken {
		fmt.Fprintf(&out, "\n--- %s %s with fastudp:\n%s\n", res.pkg, res.test, excerpt(res.fast.output, shownLines))
	}
	fmt.Fprintf(&out, "\n%d passed, %d failed\n", total.now, len(broken))
	_, err := out.WriteTo(w)
	return err
}

func list(w io.Writer, title string, results []*result) {
	if len(results) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, res := range results {
		fmt.Fprintf(w, "  %s %s: stock %s, fastudp %s\n", res.pkg, res.test, res.stock, res.fast)
	}
}

// excerpt returns the last n lines of s, or those around a panic: the stacks of all goroutines, which
// follow it, push everything else out.
func excerpt(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	end := len(lines)
	if i := slices.IndexFunc(lines, startsPanic); i != -1 {
		end = min(end, i+n/2)
	}
	return strings.Join(lines[max(0, end-n):end], "\n")
}

func startsPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}
