package fastudp

import (
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// TestMetricNames lints all metrics as CoreDNS does its own, and checks that each that is described has
// a series, those included that have none before the first error.
func TestMetricNames(t *testing.T) {
	inst := startCorefile(t, ".:0 {\nbind 127.0.0.1\nportable 2\nwhoami\n}")
	l := serving(t, inst.Servers()[0].LocalAddr().String())
	l.engines[1].count.sendError("EPERM", 1)
	l.engines[1].count.recvError("ENOMEM")

	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "coredns_fastudp_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	var there []string
	for _, f := range families {
		there = append(there, f.GetName())
	}

	described := make(chan *prometheus.Desc, 100)
	collector{}.Describe(described)
	close(described)
	if len(described) < 20 {
		t.Errorf("only %d metrics are described", len(described))
	}
	absent := []string{"coredns_fastudp_read_buffer_asked_bytes", "coredns_fastudp_write_buffer_asked_bytes"} // the default asks for none
	if runtime.GOOS != "linux" {
		absent = append(absent, "coredns_fastudp_read_buffer_bytes", "coredns_fastudp_write_buffer_bytes",
			"coredns_fastudp_kernel_dropped_total", "coredns_fastudp_kernel_queue_bytes")
	}
	for d := range described {
		name := regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1]
		if slices.Contains(there, name) == slices.Contains(absent, name) {
			t.Errorf("%s has a series: %t", name, slices.Contains(there, name))
		}
	}
}
