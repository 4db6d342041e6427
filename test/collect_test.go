package test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	generator "github.com/fastudp/fastudp/internal/load"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// TestCollector: under load the heap may grow by gc_growth from collection to collection, and after it
// the collector goes by GOGC again. Without gc_growth, or with GOGC, it always does.
func TestCollector(t *testing.T) {
	for _, v := range []struct {
		name, directive, gogc string
		normal                float64
		grows                 bool
	}{
		{"stock", "", "", 100, false},
		{"default", "fastudp 1", "", 100, true},
		{"64MiB", "fastudp 1 {\ngc_growth 64MiB\n}", "", 100, true},
		{"off", "fastudp 1 {\ngc_growth off\n}", "", 100, false},
		{"GOGC", "fastudp 1", "150", 150, false},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			web := fmt.Sprintf("127.0.0.1:%d", freePort(t))
			c := startChild(t, fmt.Sprintf(".:0 {\nbind 127.0.0.1\n%s\nprometheus %s\nsleep\n}", v.directive, web), "GOGC="+v.gogc, "GOMEMLIMIT=")
			percent := func() float64 { return goMetric(t, web, "go_gc_gogc_percent") }
			if got := percent(); got != v.normal {
				t.Errorf("%v %% at first", got)
			}
			most := v.normal
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
				if _, err := generator.Run(t.Context(), generator.Config{
					Target: netip.MustParseAddrPort(c.addrs[0]), Outstanding: 50, Duration: 500 * time.Millisecond,
					Questions: [][]byte{query("garbage-100.test.", 1)},
				}); err != nil {
					t.Fatal(err)
				}
				most = max(most, percent())
				if v.grows == (most > v.normal) && (v.grows || goMetric(t, web, "go_gc_duration_seconds") > 50) {
					break
				}
			}
			if v.grows != (most > v.normal) {
				t.Errorf("at most %v %% under load", most)
			}
			for end := time.Now().Add(20 * time.Second); percent() != v.normal; time.Sleep(time.Second) { // a scrape is work too
				if time.Now().After(end) {
					t.Fatalf("%v %% long after the load", percent())
				}
			}
		})
	}
}

// goMetric is a metric of the Go runtime.
func goMetric(t *testing.T, web, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + web + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil || families[name] == nil {
		t.Fatalf("%s is not in the scrape: %v", name, err)
	}
	m := families[name].GetMetric()[0]
	return m.GetGauge().GetValue() + float64(m.GetSummary().GetSampleCount())
}
