package main

import (
	"context"
	"fmt"
	"time"
)

var lowSection = section{
	name: "low", title: "CPU time for each query at low load",
	about: "Open loop from 10 source ports, whoami, one CPU: a wake-up for nearly every query.",
	base:  stockName,
	plan: func(_ context.Context, b *bench) ([]trial, error) {
		var loads []load
		for _, rate := range []float64{100, 1000, 10000} {
			least := time.Duration(0)
			if rate < 1000 {
				least = choose(b, 10*time.Second, 2*time.Second) // for more than a few queries
			}
			loads = append(loads, open(fmt.Sprintf("%.0f q/s", rate), rate, 10, least))
		}
		return cross(b.works("whoami"), loads, choose(b, b.pick(stockName, fastudpName, floorName), b.pick(stockName, fastudpName)), b.cpus.one), nil
	},
	charts: func(rows []row) []chart {
		return []chart{bars("low", "CPU time for each query at low load", "us", rows, func(r row) (string, string) { return r.Load, r.Server }, sample.CPU)}
	},
}
