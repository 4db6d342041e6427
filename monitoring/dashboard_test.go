package main

//lint:file-ignore SA1019 every Grafana imports the classic schema, only new ones the next

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

const dashboardFile = "../docs/grafana.json"

// readDashboard decodes the file against Grafana's schema: a field or a panel that it does not know is an error.
func readDashboard(t *testing.T) dashboard.Dashboard {
	t.Helper()
	r := cog.NewRuntime()
	r.RegisterPanelcfgVariant(timeseries.VariantConfig())
	r.RegisterPanelcfgVariant(heatmap.VariantConfig())
	r.RegisterPanelcfgVariant(table.VariantConfig())
	r.RegisterDataqueryVariant(prometheus.VariantConfig())
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	// The strict decoder finds what is wrong, but loses parts, and its empty list of errors is an error.
	var d dashboard.Dashboard
	if err := new(dashboard.Dashboard).UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDashboardIsGenerated: the file is what this program prints.
func TestDashboardIsGenerated(t *testing.T) {
	want, err := dashboardJSON()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what dashboard.go makes: in monitoring, go run . >%s", dashboardFile, dashboardFile)
	}
}

// TestDashboardSchema: the file obeys Grafana's schema and loses nothing in a round trip through it.
func TestDashboardSchema(t *testing.T) {
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(readDashboard(t))
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(compact.Bytes(), again) {
		t.Errorf("%s has fields that Grafana's schema drops or adds", dashboardFile)
	}
}

// TestDashboardPanels: each panel says what it is, in which unit, what to do, and has a place of its own.
func TestDashboardPanels(t *testing.T) {
	ids := make(map[uint32]bool)
	titles := make(map[string]bool)
	taken := make(map[[2]uint32]string)
	place := func(title string, id uint32, g dashboard.GridPos) {
		if id == 0 || ids[id] {
			t.Errorf("%s: the id %d is not unique", title, id)
		}
		if title == "" || titles[title] {
			t.Errorf("the title %q is not unique", title)
		}
		ids[id], titles[title] = true, true
		if g.X+g.W > 24 {
			t.Errorf("%s: beyond the right edge", title)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, ok := taken[[2]uint32{x, y}]; ok {
					t.Fatalf("%s lies over %s", title, other)
				}
				taken[[2]uint32{x, y}] = title
			}
		}
	}
	for _, p := range readDashboard(t).Panels {
		if row := p.RowPanel; row != nil {
			place("row "+*row.Title, row.Id, *row.GridPos)
			continue
		}
		place(*p.Panel.Title, *p.Panel.Id, *p.Panel.GridPos)
		if d := p.Panel.Description; d == nil || len(*d) < 40 {
			t.Errorf("%s: the description does not say what to do", *p.Panel.Title)
		}
		if p.Panel.Type == "timeseries" {
			if unit := p.Panel.FieldConfig.Defaults.Unit; unit == nil || *unit == "" {
				t.Errorf("%s: no unit", *p.Panel.Title)
			}
		}
		if d := p.Panel.Datasource; d == nil || *d.Uid != "${datasource}" {
			t.Errorf("%s: a fixed data source", *p.Panel.Title)
		}
	}
}

// A panelQuery is one with its panel's title.
type panelQuery struct {
	title string
	prometheus.Dataquery
}

func panelQueries(t *testing.T) (all []panelQuery) {
	t.Helper()
	for _, p := range readDashboard(t).Panels {
		if p.Panel == nil {
			continue
		}
		if len(p.Panel.Targets) == 0 {
			t.Errorf("%s: no query", *p.Panel.Title)
		}
		for _, target := range p.Panel.Targets {
			q, ok := target.(*prometheus.Dataquery)
			if !ok {
				t.Fatalf("%s: the query is a %T", *p.Panel.Title, target)
			}
			all = append(all, panelQuery{*p.Panel.Title, *q})
		}
	}
	return all
}

var variableName = regexp.MustCompile(`\$\{?(\w+)\}?`)

// substitute does what Grafana does with the variables when all values are chosen.
func substitute(expr string) string {
	return variableName.ReplaceAllStringFunc(expr, func(v string) string {
		switch v {
		case "$__rate_interval":
			return (4 * scrapeInterval).String()
		case "$job", "$instance", "$server":
			return ".+"
		}
		return v // does not parse
	})
}

// TestDashboardVariables: each variable is used, and its query finds values.
func TestDashboardVariables(t *testing.T) {
	l := startLive(t)
	used := make(map[string]bool)
	use := func(text string) {
		for _, m := range variableName.FindAllStringSubmatch(text, -1) {
			used[m[1]] = true
		}
	}
	for _, q := range panelQueries(t) {
		use(q.Expr)
		use(*q.Datasource.Uid)
	}
	var names []string
	for _, v := range readDashboard(t).Templating.List {
		names = append(names, v.Name)
		if !used[v.Name] {
			t.Errorf("no query uses $%s", v.Name)
		}
		if v.Type != dashboard.VariableTypeQuery {
			continue
		}
		m := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(*v.Query.String)
		if m == nil {
			t.Fatalf("$%s: %s", v.Name, *v.Query.String)
		}
		expr := substitute(m[1])
		checkExpr(t, expr, l.labels)
		found := l.query(t, expr, l.now)
		if len(found) == 0 || found[0].Metric.Get(m[2]) == "" {
			t.Errorf("$%s: %s finds nothing", v.Name, *v.Query.String)
		}
	}
	if want := []string{"datasource", "job", "instance", "server"}; !slices.Equal(names, want) {
		t.Errorf("variables %v, want %v", names, want)
	}
}

// TestDashboardQueries: each query parses, names what fastudp exports, and shows something for a
// server that has received, dropped, and failed to send.
func TestDashboardQueries(t *testing.T) {
	l := startLive(t)
	queries := panelQueries(t)
	if len(queries) < 20 {
		t.Errorf("only %d queries", len(queries))
	}
	for _, q := range queries {
		expr := substitute(q.Expr)
		checkExpr(t, expr, l.labels)
		found := l.query(t, expr, l.now)
		shown := slices.ContainsFunc(found, func(s engine.Sample) bool { return !math.IsNaN(s.F) })
		if !shown {
			t.Errorf("%s: %s shows nothing", q.title, expr)
		}
		for _, s := range found {
			for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(*q.LegendFormat, -1) {
				if s.Metric.Get(m[1]) == "" {
					t.Errorf("%s: the legend names %q, which %v has not", q.title, m[1], s.Metric)
				}
			}
		}
		checkChosen(t, q)
	}
}

// checkChosen checks that the variables choose what is shown: job and instance always, the server
// where there is one to tell from others.
func checkChosen(t *testing.T, q panelQuery) {
	t.Helper()
	e, err := promql.ParseExpr(substitute(q.Expr))
	if err != nil {
		return // has been told
	}
	want := []string{"job", "instance"}
	if strings.Contains(*q.LegendFormat, "{{server}}") {
		want = append(want, "server")
	}
	for _, selector := range parser.ExtractSelectors(e) {
		for _, name := range want {
			if !slices.ContainsFunc(selector, func(m *labels.Matcher) bool { return m.Name == name }) {
				t.Errorf("%s: the variable %s does not choose in %s", q.title, name, q.Expr)
			}
		}
	}
}

func (l *live) query(t *testing.T, expr string, at time.Time) engine.Vector {
	t.Helper()
	e := newEngine(t)
	q, err := e.NewInstantQuery(context.Background(), l.storage, nil, expr, at)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return nil
	}
	defer q.Close()
	v, err := q.Exec(context.Background()).Vector()
	if err != nil {
		t.Errorf("%s: %v", expr, err)
	}
	return slices.Clone(v)
}

func newEngine(t *testing.T) *engine.Engine {
	e := engine.NewEngine(engine.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: promql, EnableAtModifier: true, EnableNegativeOffset: true})
	t.Cleanup(func() { e.Close() })
	return e
}
