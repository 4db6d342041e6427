package counts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestTally(t *testing.T) {
	for _, tc := range []struct {
		name string
		seen []map[string]float64
		want uint64
	}{
		{"nothing", nil, 0},
		{"growing", []map[string]float64{{"a": 1}, {"a": 5}, {"a": 5}}, 5},
		{"series add up", []map[string]float64{{"a": 1, "b": 2}, {"a": 4, "b": 2}}, 6},
		{"series vanishes", []map[string]float64{{"a": 3, "b": 2}, {"b": 4}}, 7},
		{"series starts anew", []map[string]float64{{"a": 3}, {}, {"a": 1}, {"a": 2}}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			counted := tally{}
			for _, s := range tc.seen {
				counted.observe(s)
			}
			if got := counted.total(); got != tc.want {
				t.Errorf("total is %d, want %d", got, tc.want)
			}
		})
	}
}

func TestRecorder(t *testing.T) {
	dir := t.TempDir()
	reg := prometheus.NewRegistry()
	received := prometheus.NewCounterVec(prometheus.CounterOpts{Name: Metric}, []string{"server", "socket"})
	other := prometheus.NewCounter(prometheus.CounterOpts{Name: "coredns_fastudp_sent_total"})
	reg.MustRegister(received, other)
	r := newRecorder(dir, reg)

	check := func(want uint64) {
		t.Helper()
		r.Flush()
		if got, err := Sum(dir); err != nil || got != want {
			t.Errorf("sum is %d, %v, want %d", got, err, want)
		}
	}
	check(0)
	received.WithLabelValues("dns://:53", "0").Add(3)
	received.WithLabelValues("dns://:53", "1").Add(4)
	other.Add(100)
	check(7)
	received.DeleteLabelValues("dns://:53", "0")
	check(7)

	// Another process, and one that was killed while it wrote.
	for name, text := range map[string]string{"1": "5", "2" + partSuffix: ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check(12)
}

func TestNotAsked(t *testing.T) {
	t.Setenv(Env, "")
	if r := Start(prometheus.NewRegistry()); r != nil {
		t.Error("records without being asked")
	} else {
		r.Flush()
	}
}

func TestSumOfRubbish(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "1"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Sum(dir); err == nil {
		t.Error("no error for a file without a number")
	}
}
