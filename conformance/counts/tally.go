package counts

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// tally keeps the highest value of each series. The series of a stopped server vanishes, and the next
// server may use its name anew, so the total is what was received at least.
type tally map[string]float64

func (t tally) observe(series map[string]float64) {
	for name, value := range series {
		t[name] = max(t[name], value)
	}
}

func (t tally) total() uint64 {
	var sum float64
	for _, v := range t {
		sum += v
	}
	return uint64(sum)
}

// read returns the series of Metric. Gathering may fail for the sake of other metrics, which the
// tests are free to break; those that could be gathered are returned nevertheless.
func read(g prometheus.Gatherer) map[string]float64 {
	families, _ := g.Gather()
	series := map[string]float64{}
	for _, f := range families {
		if f.GetName() != Metric {
			continue
		}
		for _, m := range f.GetMetric() {
			var name strings.Builder
			for _, l := range m.GetLabel() {
				name.WriteString(l.GetName() + "=" + l.GetValue() + "\n")
			}
			series[name.String()] = m.GetCounter().GetValue()
		}
	}
	return series
}
