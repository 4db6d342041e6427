package main

import (
	"context"
	"fmt"
	"math"
)

var latencySection = section{
	name: "latency", title: "Latency by load",
	about: "Open loop at 10, 50 and 80 % of what stock answers at most on one CPU, from one and from many source ports; a query's time runs from when it was due. At 10 % the CPU sleeps between queries, the deeper the less the server does, and waking it takes longer than the answer: the same again with a process of idle priority (SCHED_IDLE) that keeps it awake. Then one query at a time.",
	base:  stockName,
	plan: func(ctx context.Context, b *bench) ([]trial, error) {
		servers := b.pick(stockName, fastudpName, floorName)
		var trials []trial
		for _, w := range choose(b, b.works("hits", "root"), b.works("root")) {
			peak, err := b.stockPeak(ctx, w)
			if err != nil {
				return nil, err
			}
			var loads []load
			for _, share := range []float64{0.1, 0.5, 0.8} {
				rate := max(1000, math.Round(peak*share/1000)*1000)
				for _, ports := range choose(b, []int{1, 64}, []int{64}) {
					loads = append(loads, open(fmt.Sprintf("%.0f %% of stock's most", 100*share), rate, ports, 0))
				}
				if share == 0.1 && !b.quick {
					loads = append(loads, awake(loads)...)
				}
			}
			trials = append(trials, cross([]work{w}, append(loads, oneAtATime), servers, b.cpus.one)...)
		}
		return trials, nil
	},
	charts: func(rows []row) []chart {
		var out []chart
		for _, rows := range byWork(rows) {
			w := rows[0].Work
			out = append(out, lines("latency-"+w, "99th percentile of the latency, "+w, "q/s", "us", true, rows, func(s sample) float64 { return s.P99 }))
		}
		return out
	},
}

// stockPeak is how many queries a second stock answers in a closed loop.
func (b *bench) stockPeak(ctx context.Context, w work) (float64, error) {
	s, err := b.measure(ctx, trial{w, closed(4), b.servers[stockName], b.cpus.one})
	return s.Rate, err
}
