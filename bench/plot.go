package main

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// chart is a picture of a section; without a plot there was nothing to draw.
type chart struct {
	file, title string
	plot        *plot.Plot
	width       vg.Length
	err         error
}

func (c chart) save(dir string) error {
	if c.err != nil {
		return c.err
	}
	return c.plot.Save(c.width, 10*vg.Centimeter, filepath.Join(dir, c.file))
}

func newChart(file, title, y string) chart {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text = title, y
	p.BackgroundColor = color.White
	p.Y.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	return chart{file: file + ".svg", title: title, plot: p, width: 18 * vg.Centimeter}
}

// lines draws the medians by the loads' points, a line with its range for each server and series.
func lines(file, title, x, y string, log bool, rows []row, of func(sample) float64) chart {
	at := points(rows)
	if len(at) == 0 {
		return chart{}
	}
	c := newChart(file, title, y)
	c.plot.X.Label.Text = x
	if log {
		c.plot.Y.Scale, c.plot.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	series, groups := make(map[string]bool), make(map[string][]row)
	for _, r := range rows {
		series[r.Series] = series[r.Series] || r.Point != 0
	}
	delete(series, "")
	var names []string
	for _, r := range rows {
		if r.Point == 0 || r.spread(of).Min <= 0 && log {
			continue
		}
		name := r.Server
		if len(series) > 1 {
			name += ", " + r.Series
		}
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], r)
	}
	least := 0.0
	for i, name := range names {
		var data errorPoints
		for _, r := range groups[name] {
			s := r.spread(of)
			if least == 0 || s.Min < least {
				least = s.Min
			}
			data.XYs = append(data.XYs, plotter.XY{X: r.Point, Y: s.Median})
			data.YErrors = append(data.YErrors, struct{ Low, High float64 }{s.Median - s.Min, s.Max - s.Median})
		}
		line, marks, err1 := plotter.NewLinePoints(data)
		ranges, err2 := plotter.NewYErrorBars(data)
		if err1 != nil || err2 != nil {
			c.err = fmt.Errorf("%s: %w, %w", name, err1, err2)
			return c
		}
		line.Color, marks.Color, marks.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		ranges.Color = plotutil.Color(i)
		c.plot.Add(line, marks, ranges)
		c.plot.Legend.Add(name, line, marks)
	}
	// The loads are few: the axis names them and nothing between.
	margin := (at[len(at)-1] - at[0]) * 0.05
	c.plot.X.Min, c.plot.X.Max = at[0]-margin, at[len(at)-1]+margin
	var ticks plot.ConstantTicks
	for _, p := range at {
		ticks = append(ticks, plot.Tick{Value: p, Label: fmt.Sprintf("%.0f", p)})
	}
	c.plot.X.Tick.Marker = ticks
	if log {
		c.plot.Y.Min = least
	} else {
		c.plot.Y.Min = 0
		c.plot.Y.Max = math.Ceil(c.plot.Y.Max * (1 + 0.08*float64(len(names)))) // room for the legend
	}
	return c
}

// errorPoints are medians with their ranges.
type errorPoints struct {
	plotter.XYs
	plotter.YErrors
}

// bars draws the medians, grouped by the first string of by and told apart by the second.
func bars(file, title, y string, rows []row, by func(row) (group, kind string), of func(sample) float64) chart {
	c := newChart(file, title, y)
	var groups, kinds []string
	values := make(map[[2]string]float64)
	for _, r := range rows {
		g, k := by(r)
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
		if !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
		values[[2]string{g, k}] = r.spread(of).Median
	}
	c.width = max(c.width, vg.Length(len(groups))*2.4*vg.Centimeter)
	width := c.width / vg.Length(len(groups)) * 0.7 / vg.Length(len(kinds))
	for i, k := range kinds {
		var v plotter.Values
		for _, g := range groups {
			v = append(v, values[[2]string{g, k}])
		}
		b, err := plotter.NewBarChart(v, width)
		if err != nil {
			c.err = err
			return c
		}
		b.Color, b.LineStyle.Width = plotutil.Color(i), 0
		b.Offset = width * (vg.Length(i) - vg.Length(len(kinds)-1)/2)
		c.plot.Add(b)
		if k != "" {
			c.plot.Legend.Add(k, b)
		}
	}
	c.plot.NominalX(groups...)
	c.plot.X.Min, c.plot.X.Max = -0.5, float64(len(groups))-0.5
	c.plot.Y.Max = math.Ceil(c.plot.Y.Max * 1.15)
	return c
}

// without leaves a server out, one that would dwarf the others.
func without(server string, rows []row) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.Server == server })
}

// byWork divides rows, in their order.
func byWork(rows []row) (out [][]row) {
	for _, r := range rows {
		i := slices.IndexFunc(out, func(o []row) bool { return o[0].Work == r.Work })
		if i < 0 {
			i, out = len(out), append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// points are the distinct places of the loads on a chart's axis.
func points(rows []row) []float64 {
	var out []float64
	for _, r := range rows {
		if r.Point != 0 {
			out = append(out, r.Point)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
