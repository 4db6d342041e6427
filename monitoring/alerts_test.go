package main

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const alertsFile = "../docs/alerts.yaml"

// readAlerts reads the rules as Prometheus does: a field that it does not know is an error.
func readAlerts(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, promql, promslog.NewNopLogger())
	if errs != nil {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestAlertTexts: each alert says what is wrong, where, how bad, and what to do.
func TestAlertTexts(t *testing.T) {
	for _, r := range readAlerts(t) {
		if !strings.HasPrefix(r.Alert, "Fastudp") {
			t.Errorf("the name %q", r.Alert)
		}
		if s := r.Labels["severity"]; s != "info" && s != "warning" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if s := r.Annotations["summary"]; !strings.Contains(s, "$labels.instance") || !strings.Contains(s, "$labels.server") {
			t.Errorf("%s: the summary does not say where: %s", r.Alert, s)
		}
		if time.Duration(r.For) < 5*time.Minute && r.Alert != "FastudpParserPanic" {
			t.Errorf("%s: one short burst fires it", r.Alert)
		}
		if len(r.Annotations["remedy"]) < 40 {
			t.Errorf("%s: no remedy", r.Alert)
		}
	}
}

// TestAlertNames: the rules, and the series that they are tested with, have the names and labels that
// fastudp exports.
func TestAlertNames(t *testing.T) {
	l := startLive(t)
	for _, r := range readAlerts(t) {
		checkExpr(t, r.Expr, l.labels)
	}
	for _, tt := range alertCases {
		for _, m := range regexp.MustCompile(`(\w+){L([^}]*)}`).FindAllStringSubmatch(tt.series, -1) {
			got := []string{"__name__", "job", "instance", "server"}
			for _, label := range regexp.MustCompile(`(\w+)=`).FindAllStringSubmatch(m[2], -1) {
				got = append(got, label[1])
			}
			want := slices.Sorted(slices.Values(l.labels[m[1]]))
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s: %s has the labels %v, exported are %v", tt.name, m[1], got, want)
			}
		}
	}
}

// TestAlerts: each alert fires for its bad series, with the text that it should have, and no alert
// fires for good ones, nor another one for bad ones.
func TestAlerts(t *testing.T) {
	fired := make(map[string]bool)
	for _, tt := range alertCases {
		t.Run(tt.name, func(t *testing.T) {
			want := make(map[string]string)
			if tt.alert != "" {
				want[tt.alert] = tt.summary
				fired[tt.alert] = true
			}
			if got := firing(t, tt.series); !maps.Equal(got, want) {
				t.Errorf("firing:\n%v\nwant:\n%v", got, want)
			}
		})
	}
	for _, r := range readAlerts(t) {
		if !fired[r.Alert] {
			t.Errorf("no case in which %s fires", r.Alert)
		}
	}
}

// firing are the alerts that fire after half an hour, with their summaries.
func firing(t *testing.T, series string) map[string]string {
	t.Helper()
	load := "load 1m\n"
	for line := range strings.Lines(series) {
		if line = strings.TrimSpace(line); line != "" {
			load += "  " + strings.Replace(line, "{L", `{job="coredns", instance="ns1", server="dns://:53"`, 1) + "\n"
		}
	}
	storage := promqltest.LoadedStorage(t, load)
	defer storage.Close()
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(newEngine(t), storage),
		Appendable: storage,
		Queryable:  storage,
		Context:    context.Background(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     promslog.NewNopLogger(),
		Parser:     promql,
	})
	groups, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, alertsFile)
	if errs != nil {
		t.Fatal(errs)
	}
	found := make(map[string]string)
	for minute := range 31 {
		for _, g := range groups {
			g.Eval(context.Background(), time.Unix(0, 0).Add(time.Duration(minute)*time.Minute))
			for _, r := range g.AlertingRules() {
				if err := r.LastError(); err != nil {
					t.Fatalf("%s: %v", r.Name(), err)
				}
			}
		}
	}
	for _, g := range groups {
		for _, r := range g.AlertingRules() {
			for _, a := range r.ActiveAlerts() {
				if a.State == rules.StateFiring {
					found[r.Name()] += a.Annotations.Get("summary") // two alerts of a name would show
				}
			}
		}
	}
	return found
}
