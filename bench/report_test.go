package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fastudp/fastudp/internal/child"
)

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want spread
		text string
	}{
		{nil, spread{}, ""},
		{[]float64{3}, spread{3, 3, 3}, "3.00"},
		{[]float64{40, 10}, spread{25, 10, 40}, "25.0 (10.0-40.0)"},
		{[]float64{500, 100, 3}, spread{100, 3, 500}, "100 (3.00-500)"},
	} {
		if got := spreadOf(c.in); got != c.want || got.String() != c.text {
			t.Errorf("%v: got %v %q, want %v %q", c.in, got, got.String(), c.want, c.text)
		}
	}
}

func TestSample(t *testing.T) {
	tr := trial{cpus: []int{0, 1}}
	o := outcome{Sent: 1000, Answered: 800, Lost: 200, Late: 10, Elapsed: 2 * time.Second, Latency: &latency{Average: time.Millisecond, P99: 3 * time.Millisecond}}
	now := time.Now()
	before := reading{child.Usage{User: time.Second}, 0, now, counters{Received: 100, Reads: 100, Sent: 50, Sends: 50}}
	after := reading{child.Usage{User: time.Second + 8*time.Millisecond, System: 4 * time.Millisecond, PeakRSS: 3 << 20}, 412 * time.Millisecond, now.Add(2 * time.Second), counters{Received: 900, Reads: 200, Sent: 850, Sends: 150}}
	got := newSample(tr, o, before, after)
	want := sample{User: 10, System: 5, Busy: 0.003, Others: 10, Rate: 400, Asked: 500, Lost: 20, Late: 1, PeakRSS: 3, ReadBatch: 8, SendBatch: 8, Syscalls: 0.25, Average: 1000, P99: 3000}
	if got != want || got.CPU() != 15 {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	after.usage.User, after.usage.System = time.Second-4*time.Millisecond, 8*time.Millisecond
	if got := newSample(tr, o, before, after); got.User != 0 || got.System != 5 {
		t.Errorf("user time that goes backwards: user %v, system %v, want 0 and 5", got.User, got.System)
	}
}

func rowOf(server, load string, rates ...float64) row {
	r := row{Work: "w", Load: load, Server: server, Point: 1}
	for i, v := range rates {
		r.Samples = append(r.Samples, sample{Round: i, Rate: v, User: 1e6 / v})
	}
	return r
}

// TestRatios pairs the rounds, also if one of them is missing.
func TestRatios(t *testing.T) {
	a, b := rowOf("a", "l", 20, 90, 10), rowOf("b", "l", 10, 30, 20)
	if got := ratios(a, b, rateOf); got != (spread{2, 0.5, 3}) {
		t.Errorf("got %v", got)
	}
	b.Samples = b.Samples[1:]
	if got := ratios(a, b, rateOf); got != (spread{1.75, 0.5, 3}) {
		t.Errorf("with a round missing: got %v", got)
	}
}

func TestMarkLimited(t *testing.T) {
	flood := func(lost float64) row {
		r := rowOf("x", "flood", 50)
		r.Flood, r.Point, r.Samples[0].Asked, r.Samples[0].Lost = true, 100, 99, lost
		return r
	}
	late := rowOf("x", "open", 50)
	late.Samples[0].Late = 5
	slow := flood(30)
	slow.Samples[0].Asked = 80
	open := rowOf("open", "l", 99) // a rate that is given is no limit
	open.Open = true
	rows := []row{
		rowOf(floorName, "l", 100), rowOf("near", "l", 95), rowOf("far", "l", 80), rowOf("other load", "m", 95),
		flood(0.5), flood(30), slow, late, open,
	}
	markLimited(rows)
	for i, want := range []string{"", "generator", "", "", "offered rate", "", "generator slow", "generator late", ""} {
		if rows[i].Limited != want {
			t.Errorf("%s, %s: %q, want %q", rows[i].Server, rows[i].Load, rows[i].Limited, want)
		}
	}
}

// TestReport writes a report with each section's charts and reads it back.
func TestReport(t *testing.T) {
	rep := &report{Machine: []string{"a machine"}, Left: []string{"NSD: nsd is not installed"}, Failed: []string{"a trial: why\nmore"}, Options: map[string]any{"rounds": 2, "seconds": 1}}
	for _, s := range sections {
		rows := []row{rowOf(stockName, "1 client", 100, 50), rowOf(fastudpName, "1 client", 200, 100), rowOf(floorName, "1 client", 400, 300)}
		for _, r := range rows {
			r.Load, r.Point = "2 clients", 2
			rows = append(rows, r)
		}
		for i := range rows {
			rows[i].Samples[0].P99, rows[i].Samples[1].P99 = 10, 20
			rows[i].Samples[0].Others, rows[i].Samples[1].Others = 30, 20
		}
		rep.Sections = append(rep.Sections, sectionReport{section: s, Name: s.name, Title: s.title, About: s.about, Base: s.base, Rows: rows})
	}
	dir := t.TempDir()
	if err := rep.write(dir); err != nil {
		t.Fatal(err)
	}
	md, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"2 round(s) of 1 s each", "Other processes took 25.0 % of the server's CPU", "- a machine", "- NSD: nsd is not installed", "- a trial: why\n",
		"## Study 1: answered queries a second by clients: ratios",
		"| w | 1 client | fastudp | 0.50 | 2.00 |  |  | 1.00 |  |\n",
		"| w | 1 client | stock | 15000 (10000-20000) |",
		"![One CPU, w](clients-w.svg)",
	} {
		if !strings.Contains(string(md), want) {
			t.Errorf("no %q in the report", want)
		}
	}
	if strings.Contains(string(md), "\nmore") || strings.Contains(string(md), "| read batch") {
		t.Error("the report has the second line of an error or a column that nothing fills")
	}
	for _, chart := range []string{"cpu", "clients-w", "saturation-w", "peers", "latency-w", "low", "two"} {
		svg, err := os.ReadFile(filepath.Join(dir, chart+".svg"))
		if err != nil || !strings.Contains(string(svg), "fastudp") || strings.Contains(string(svg), "NaN") {
			t.Errorf("chart %s: %d bytes, %v", chart, len(svg), err)
		}
	}
	var back struct{ Sections []struct{ Rows []row } }
	data, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err == nil {
		err = json.Unmarshal(data, &back)
	}
	if err != nil || len(back.Sections) != len(sections) || len(back.Sections[0].Rows) != 6 || back.Sections[0].Rows[1].Samples[1].Rate != 100 {
		t.Errorf("report.json: %v", err)
	}
}
