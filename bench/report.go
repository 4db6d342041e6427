package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

type report struct {
	Machine  []string
	Options  map[string]any
	Left     []string `json:",omitempty"` // what was not measured, and why
	Failed   []string `json:",omitempty"`
	Sections []sectionReport
}

type sectionReport struct {
	section
	Name, Title, About, Base string
	Rows                     []row
}

// write writes report.json, report.md and the charts to dir and prints the ratios.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	var md strings.Builder
	r.markdown(&md)
	for _, s := range r.Sections {
		if s.charts == nil {
			continue
		}
		fmt.Fprintf(&md, "\n## Charts: %s\n\n", s.Title)
		for _, c := range s.charts(s.Rows) {
			if c.plot == nil {
				continue
			}
			if err := c.save(dir); err != nil {
				return fmt.Errorf("chart %s: %w", c.file, err)
			}
			fmt.Fprintf(&md, "![%s](%s)\n", c.title, c.file)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte(md.String()), 0o644); err != nil {
		return err
	}
	r.print(os.Stdout)
	if loud := r.loud(); loud != "" {
		fmt.Println("\n" + loud)
	}
	fmt.Println("\nreport:", filepath.Join(dir, "report.md"))
	return nil
}

// redraw writes a report anew from its report.json.
func redraw(file, dir string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for i := range r.Sections {
		for _, s := range sections {
			if s.name == r.Sections[i].Name {
				r.Sections[i].section = s
			}
		}
	}
	return r.write(dir)
}

// loud says whether the machine had more to do than to measure, and is empty if it had not.
func (r *report) loud() string {
	if o := r.others(); o.Median > fewOthers {
		return fmt.Sprintf("Other processes took %s %% of the server's CPU: the machine was not quiet, and the figures are of little use.", o)
	}
	return ""
}

// markdown writes the ratios of all sections first, then each section's figures.
func (r *report) markdown(w io.Writer) {
	fmt.Fprintf(w, "# Measurements\n\n%v round(s) of %v s each", r.Options["rounds"], r.Options["seconds"])
	fmt.Fprint(w, ", medians with their ranges in parentheses; servers alternate within a round. One machine, one run: compare the ratios, not the absolute figures.\n\n")
	list(w, "", r.Machine)
	if loud := r.loud(); loud != "" {
		fmt.Fprintf(w, "**%s**\n\n", loud)
	}
	list(w, "Left out:\n\n", r.Left)
	list(w, "Failed:\n\n", r.Failed)
	for _, s := range r.Sections {
		fmt.Fprintf(w, "## %s: ratios\n\n%s\n\n", s.Title, s.About)
		table(w, s.ratioTable())
	}
	for _, s := range r.Sections {
		fmt.Fprintf(w, "## %s: figures\n\n", s.Title)
		table(w, s.figureTable())
	}
	fmt.Fprint(w, legend)
}

const fewOthers = 5 // of a hundred

// others is what other processes took of the server's CPU, where the load does not share it.
func (r *report) others() spread {
	var v []float64
	for _, s := range r.Sections {
		for _, r := range s.Rows {
			if s.Name != twoSection.name {
				v = append(v, r.spread(func(s sample) float64 { return s.Others }).Median)
			}
		}
	}
	return spreadOf(v)
}

const legend = `CPU is user and system time of the server for each answered query, in microseconds. Busy is its CPU
time by wall time, for each of its CPUs; others is what other processes took of those CPUs, in section
two the load too. Latencies are in microseconds. A rate that says "generator" is nearer than 10 % to
what the same load gets out of the echo in C, "offered rate" lost less than 1 % of
what was offered, "generator slow" sent 10 % less than was to be offered, "generator late" sent more than
1 % of its queries over 1 ms late: the server was not the limit. Answers under a flood are counted where
the server sends them; unseen are those of which the generator took no notice, and they are answered
queries all the same. Batches are messages for each read and each send, reads and sends are those for
each answered query, all by fastudp's metrics; system calls are of all kinds, counted by perf in a run
of their own. A server that forks, as NSD does, has the pages that its processes share counted for each.
`

func list(w io.Writer, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprint(w, title)
	for _, i := range items {
		first, _, _ := strings.Cut(i, "\n")
		fmt.Fprintf(w, "- %s\n", first)
	}
	fmt.Fprintln(w)
}

// print shows the ratios on a terminal.
func (r *report) print(w io.Writer) {
	for _, s := range r.Sections {
		fmt.Fprintf(w, "\n%s, by %s\n", s.Title, s.Base)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, line := range s.ratioTable() {
			fmt.Fprintln(t, strings.Join(line, "\t"))
		}
		t.Flush()
	}
}

// table writes rows, of which the first is the head.
func table(w io.Writer, rows [][]string) {
	for i, line := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", len(line)))
		}
	}
	fmt.Fprintln(w)
}

// ratioTable compares each server with the base under the same load.
func (s sectionReport) ratioTable() [][]string {
	out := [][]string{{"work", "load", "server", "CPU", "rate", "latency", "p50", "p99", "limit"}}
	for _, r := range s.Rows {
		base, ok := s.find(r.Work, r.Load, s.Base)
		if !ok || r.Server == s.Base {
			continue
		}
		out = append(out, []string{r.Work, r.Load, r.Server,
			ratios(r, base, sample.CPU).String(), ratios(r, base, rateOf).String(),
			ratios(r, base, func(s sample) float64 { return s.Average }).String(),
			ratios(r, base, func(s sample) float64 { return s.P50 }).String(),
			ratios(r, base, func(s sample) float64 { return s.P99 }).String(),
			r.Limited,
		})
	}
	return out
}

func (s sectionReport) find(work, load, server string) (row, bool) {
	for _, r := range s.Rows {
		if r.Work == work && r.Load == load && r.Server == server {
			return r, true
		}
	}
	return row{}, false
}

// figures are the columns of a section's figures; a column without a figure in any row is left out.
var figures = []struct {
	name string
	of   func(sample) float64
}{
	{"CPU us", sample.CPU},
	{"user", func(s sample) float64 { return s.User }},
	{"system", func(s sample) float64 { return s.System }},
	{"busy", func(s sample) float64 { return s.Busy }},
	{"others %", func(s sample) float64 { return s.Others }},
	{"q/s", rateOf},
	{"asked q/s", func(s sample) float64 { return s.Asked }},
	{"lost %", lostOf},
	{"unseen %", func(s sample) float64 { return s.Unseen }},
	{"average us", func(s sample) float64 { return s.Average }},
	{"min", func(s sample) float64 { return s.MinLatency }},
	{"max", func(s sample) float64 { return s.MaxLatency }},
	{"stddev", func(s sample) float64 { return s.StdDev }},
	{"p50", func(s sample) float64 { return s.P50 }},
	{"p99", func(s sample) float64 { return s.P99 }},
	{"p99.9", func(s sample) float64 { return s.P999 }},
	{"peak MiB", func(s sample) float64 { return s.PeakRSS }},
	{"read batch", func(s sample) float64 { return s.ReadBatch }},
	{"send batch", func(s sample) float64 { return s.SendBatch }},
	{"reads and sends", func(s sample) float64 { return s.Syscalls }},
	{"system calls", func(s sample) float64 { return s.AllCalls }},
	{"request bytes", func(s sample) float64 { return s.Request }},
	{"response bytes", func(s sample) float64 { return s.Response }},
}

func (s sectionReport) figureTable() [][]string {
	out := [][]string{{"work", "load", "server"}}
	for _, r := range s.Rows {
		out = append(out, []string{r.Work, r.Load, r.Server})
	}
	for _, f := range figures {
		known := f.name == "lost %"
		column := []string{f.name}
		for _, r := range s.Rows {
			v := r.spread(f.of)
			known = known || v.Max > 0
			if v.Max == 0 && f.name == "lost %" {
				column = append(column, "0")
			} else {
				column = append(column, v.String())
			}
		}
		if known {
			for i := range out {
				out[i] = append(out[i], column[i])
			}
		}
	}
	for i := range out {
		limit := "limit"
		if i > 0 {
			limit = s.Rows[i-1].Limited
		}
		out[i] = append(out[i], limit)
	}
	return out
}

// String is the median, and the range if there is one.
func (s spread) String() string {
	switch {
	case s == spread{}:
		return ""
	case s.Min == s.Max:
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s-%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number has three digits or all before the point.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
