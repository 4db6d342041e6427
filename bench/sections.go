package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// section is a table of the report.
type section struct {
	name, title, about string
	base               string // the server to which the ratios relate
	// plan lists the trials of a round. It may measure what it needs to know first.
	plan func(ctx context.Context, b *bench) ([]trial, error)
	// charts draws the rows; nil: none.
	charts func(rows []row) []chart
}

var sections = []section{cpuSection, clientsSection, saturationSection, peersSection, latencySection, lowSection, twoSection}

func sectionNames() (names []string) {
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// cross makes the trials of works under loads by servers. The servers alternate fastest, so that what
// is compared is measured side by side.
func cross(works []work, loads []load, servers []server, cpus []int) (out []trial) {
	for _, w := range works {
		for _, l := range loads {
			for _, s := range servers {
				if s.can(w) {
					out = append(out, trial{w, l, s, cpus})
				}
			}
		}
	}
	return out
}

// floor is a trial of the echo in C for each load: the generator's limit.
func (b *bench) floor(w work, cpus []int, loads ...load) []trial {
	return cross([]work{w}, loads, b.pick(floorName), cpus)
}

func (b *bench) works(names ...string) (out []work) {
	for _, n := range names {
		out = append(out, b.input[n])
	}
	return out
}

// choose is full, or quick in a quick run.
func choose[T any](b *bench, full, quick T) T {
	if b.quick {
		return quick
	}
	return full
}

// measureAll runs the sections one after the other.
func (b *bench) measureAll(ctx context.Context) (*report, error) {
	rep := &report{Options: map[string]any{"rounds": b.rounds, "seconds": b.time.Seconds(), "quick": b.quick}}
	for _, s := range sections {
		if !b.only.MatchString(s.name) {
			continue
		}
		rows, err := b.section(ctx, s, rep)
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", s.name, err)
		}
		if len(rows) > 0 {
			rep.Sections = append(rep.Sections, sectionReport{section: s, Name: s.name, Title: s.title, About: s.about, Base: s.base, Rows: rows})
		}
	}
	rep.Machine, rep.Left = b.machine(), b.left
	return rep, nil
}

// section measures the rounds of a section. A trial that fails is noted and the others go on.
func (b *bench) section(ctx context.Context, s section, rep *report) ([]row, error) {
	trials, err := s.plan(ctx, b)
	if err != nil || len(trials) == 0 {
		return nil, err
	}
	rows := make([]row, len(trials))
	for i, t := range trials {
		rows[i] = row{Work: t.work.name, Load: t.load.name, Server: t.server.name, Point: t.load.point, Series: t.load.series, Open: t.load.rate > 0, Flood: t.load.netns}
	}
	const overhead = time.Second // start, warm-up and stop
	var total time.Duration
	for _, t := range trials {
		total += max(b.time, t.load.least)*5/4 + overhead
	}
	fmt.Printf("\n%s: %d measurements, %d rounds, about %v\n", s.name, len(trials), b.rounds, (total * time.Duration(b.rounds)).Round(time.Second))
	begin, count := time.Now(), 0
	for round := range b.rounds {
		for i, t := range trials {
			r, err := b.measure(ctx, t)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			count++
			toGo := time.Since(begin) / time.Duration(count) * time.Duration(len(trials)*b.rounds-count)
			progress := fmt.Sprintf("%s %d/%d, %v to go: %s, %s, %s:", s.name, count, len(trials)*b.rounds, toGo.Round(time.Second), t.work.name, t.load.name, t.server.name)
			if err != nil {
				fmt.Println(progress, err)
				note := fmt.Sprintf("%s, %s, %s, %s: %v", s.name, t.work.name, t.load.name, t.server.name, err)
				if !slices.Contains(rep.Failed, note) {
					rep.Failed = append(rep.Failed, note)
				}
				continue
			}
			r.Round = round
			rows[i].Samples = append(rows[i].Samples, r)
			fmt.Printf("%s %.2f us a query, %.0f q/s, %.2f %% lost\n", progress, r.CPU(), r.Rate, r.Lost)
		}
	}
	rows = slices.DeleteFunc(rows, func(r row) bool { return len(r.Samples) == 0 })
	markLimited(rows)
	return rows, nil
}
