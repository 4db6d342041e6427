package main

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a picture of a section; without a plot there was nothing to draw.
type chart struct {
	file, title string
	plot        *plot.Plot
	legend      plot.Legend // beside the plot, for nothing to be below it; empty for one kind of thing
	named       bool
	height      vg.Length
	err         error
}

const (
	chartWidth  = 18 * vg.Centimeter
	chartHeight = 9 * vg.Centimeter
	legendWidth = 5.5 * vg.Centimeter
)

func (c *chart) name(what string, thumbs ...plot.Thumbnailer) {
	c.legend.Add(what, thumbs...)
	c.named = true
}

func (c chart) save(dir string) error {
	if c.err != nil {
		return c.err
	}
	width := chartWidth
	if c.named {
		width += legendWidth
	}
	svg := vgsvg.New(width, c.height)
	all := draw.New(svg)
	all.SetColor(color.White) // also where the reader's page is dark
	all.Fill(all.Rectangle.Path())
	left := all
	if c.named {
		left = draw.Crop(all, 0, -legendWidth, 0, 0)
		c.legend.Draw(draw.Crop(all, chartWidth+0.3*vg.Centimeter, 0, 0, -vg.Centimeter))
	}
	c.plot.Draw(draw.Crop(left, 0.2*vg.Centimeter, -0.6*vg.Centimeter, 0, 0)) // the last tick's text is wider than half a tick
	f, err := os.Create(filepath.Join(dir, c.file))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	_, err = svg.WriteTo(&b)
	if err == nil {
		// Fonts of the same widths that others have.
		_, err = f.WriteString(strings.ReplaceAll(b.String(), "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"))
	}
	return errors.Join(err, f.Close())
}

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}

func newChart(file, title string) chart {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = 0.2 * vg.Centimeter
	p.BackgroundColor = color.White
	p.Add(plotter.NewGrid())
	c := chart{file: file + ".svg", title: title, plot: p, legend: plot.NewLegend(), height: chartHeight}
	c.legend.Top, c.legend.Left = true, true
	c.legend.Padding = 0.08 * vg.Centimeter
	return c
}

// shortTicks has thousands as k.
type shortTicks struct{ plot.Ticker }

func (t shortTicks) Ticks(lo, hi float64) []plot.Tick {
	ticks := t.Ticker.Ticks(lo, hi)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short(ticks[i].Value)
		}
	}
	return ticks
}

func short(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v/1000, 'g', 4, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// lines draws the medians by the loads' points, a line with its range for each server and series.
func lines(file, title, x, y string, log bool, rows []row, of func(sample) float64) chart {
	at := points(rows)
	if len(at) == 0 {
		return chart{}
	}
	c := newChart(file, title)
	c.plot.X.Label.Text, c.plot.Y.Label.Text = x, y
	c.plot.Y.Tick.Marker = shortTicks{plot.DefaultTicks{}}
	if log {
		c.plot.Y.Scale, c.plot.Y.Tick.Marker = plot.LogScale{}, shortTicks{plot.LogTicks{Prec: -1}}
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
		c.name(name, line, marks)
	}
	// The loads are few: the axis names them and nothing between.
	margin := (at[len(at)-1] - at[0]) * 0.05
	c.plot.X.Min, c.plot.X.Max = at[0]-margin, at[len(at)-1]+margin
	var ticks plot.ConstantTicks
	for _, p := range at {
		ticks = append(ticks, plot.Tick{Value: p, Label: short(p)})
	}
	c.plot.X.Tick.Marker = ticks
	if log {
		c.plot.Y.Min = least
	} else {
		c.plot.Y.Min = 0
	}
	return c
}

// errorPoints are medians with their ranges.
type errorPoints struct {
	plotter.XYs
	plotter.YErrors
}

// bars draws the medians from left to right, grouped by the first string of by and told apart by the second.
func bars(file, title, unit string, rows []row, by func(row) (group, kind string), of func(sample) float64) chart {
	c := newChart(file, title)
	c.plot.X.Label.Text = unit
	c.plot.X.Tick.Marker = shortTicks{plot.DefaultTicks{}}
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
	slices.Reverse(groups) // the axis goes up
	var names []string
	for _, g := range groups {
		names = append(names, g+"     ") // for who has none of the fonts but a wider one
	}
	const thick = 0.45 * vg.Centimeter
	pitch := thick*vg.Length(len(kinds)) + 0.3*vg.Centimeter
	c.height = pitch*vg.Length(len(groups)) + 2.5*vg.Centimeter
	most := 0.0
	for i, k := range kinds {
		var v plotter.Values
		var at plotter.XYLabels
		offset := thick * (vg.Length(len(kinds)-1)/2 - vg.Length(i))
		for n, g := range groups {
			value := values[[2]string{g, k}]
			v = append(v, value)
			most = max(most, value)
			if value > 0 {
				at.XYs = append(at.XYs, plotter.XY{X: value, Y: float64(n)})
				at.Labels = append(at.Labels, " "+short3(value))
			}
		}
		b, err1 := plotter.NewBarChart(v, thick)
		texts, err2 := plotter.NewLabels(at)
		if err1 != nil || err2 != nil {
			c.err = fmt.Errorf("%s: %w, %w", k, err1, err2)
			return c
		}
		b.Horizontal, b.Offset = true, offset
		b.Color, b.LineStyle.Width = plotutil.Color(i), 0
		texts.Offset = vg.Point{Y: offset - 0.12*vg.Centimeter}
		c.plot.Add(b, texts)
		if k != "" {
			c.name(k, b)
		}
	}
	c.plot.NominalY(names...)
	c.plot.Y.Min, c.plot.Y.Max = -0.5, float64(len(groups))-0.5
	c.plot.X.Min, c.plot.X.Max = 0, most*1.12 // room for the numbers
	return c
}

// short3 has three digits.
func short3(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v/1000, 'f', 0, 64) + "k"
	}
	return number(v)
}

// without leaves a server out, one that would dwarf the others.
func without(server string, rows []row) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.Server == server })
}

func only(rows []row, servers ...string) []row {
	return slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return !slices.Contains(servers, r.Server) })
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
