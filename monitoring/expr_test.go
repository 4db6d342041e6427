package main

import (
	"slices"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// promql parses as a Prometheus without feature flags does.
var promql = parser.NewParser(parser.Options{})

// checkExpr checks that expr parses and names only metrics that were scraped, and labels that they have.
func checkExpr(t *testing.T, expr string, scraped map[string][]string) {
	t.Helper()
	e, err := promql.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return
	}
	selectors := 0
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			selectors++
			if scraped[n.Name] == nil {
				t.Errorf("%s: nothing exports %q", expr, n.Name)
			}
			for _, m := range n.LabelMatchers {
				checkLabels(t, n, []string{m.Name}, scraped)
			}
		case *parser.AggregateExpr:
			checkLabels(t, n, n.Grouping, scraped)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				checkLabels(t, n, n.VectorMatching.MatchingLabels, scraped)
				checkLabels(t, n, n.VectorMatching.Include, scraped)
			}
		}
		return nil
	})
	if selectors == 0 {
		t.Errorf("%s: names no metric", expr)
	}
}

// checkLabels checks that all metrics within n have these labels.
func checkLabels(t *testing.T, n parser.Node, names []string, scraped map[string][]string) {
	t.Helper()
	parser.Inspect(n, func(inner parser.Node, _ []parser.Node) error {
		if v, ok := inner.(*parser.VectorSelector); ok && scraped[v.Name] != nil {
			for _, name := range names {
				if !slices.Contains(scraped[v.Name], name) {
					t.Errorf("%s: %s has no label %q, but %v", n, v.Name, name, scraped[v.Name])
				}
			}
		}
		return nil
	})
}
