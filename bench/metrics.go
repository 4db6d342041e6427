package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// counters are fastudp's, summed over the sockets.
type counters struct{ Received, Reads, Sent, Sends, KernelDropped float64 }

func scrape(p place) (counters, error) {
	resp, err := httpIn(p.netns).Get(fmt.Sprintf("http://%s:%d/metrics", p.host, p.metrics))
	if err != nil {
		return counters{}, err
	}
	defer resp.Body.Close()
	return parseCounters(resp.Body, fmt.Sprintf(":%d", p.port))
}

// parseCounters sums the series of the listeners whose address ends with suffix.
func parseCounters(r io.Reader, suffix string) (counters, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return counters{}, err
	}
	var c counters
	for name, to := range map[string]*float64{
		"received": &c.Received, "reads": &c.Reads, "responses": &c.Sent, "sends": &c.Sends, "kernel_dropped": &c.KernelDropped,
	} {
		name = "coredns_fastudp_" + name + "_total"
		family := families[name]
		if family == nil {
			return c, fmt.Errorf("no metric %s: is the listener fastudp's?", name)
		}
		for _, m := range family.Metric {
			for _, l := range m.Label {
				if l.GetName() == "server" && strings.HasSuffix(l.GetValue(), suffix) {
					*to += m.GetCounter().GetValue()
				}
			}
		}
	}
	if c.Received == 0 {
		return c, fmt.Errorf("fastudp has no series of a listener at %s", suffix)
	}
	return c, nil
}
