package main

import (
	"context"
	"fmt"
)

var saturationSection = section{
	name: "saturation", title: "Answered queries a second at saturation",
	about: "kxdpgun over a veth pair between two network namespaces, the server on one CPU. It offers the rate whatever becomes of the queries.",
	base:  stockName,
	plan: func(ctx context.Context, b *bench) ([]trial, error) {
		if err := b.needVeth(ctx); err != nil {
			b.leave("section saturation: %v", err)
			return nil, ctx.Err()
		}
		var loads []load
		for _, rate := range choose(b, []float64{100e3, 200e3, 400e3}, []float64{400e3}) {
			loads = append(loads, flood(rate))
		}
		servers := choose(b,
			b.pick(stockName, "multisocket+shed", fastudpName, "NSD", "Knot", "Unbound", "PowerDNS", "BIND", "listener alone", "echo in Go", floorName, "multisocket"),
			b.pick(stockName, fastudpName, "NSD", "Knot", "listener alone", floorName))
		trials := cross(b.works("file"), loads, servers, b.cpus.one)
		if !b.quick {
			trials = append(trials, cross(b.works("root"), loads, b.pick(stockName, fastudpName, "NSD", "Knot", "PowerDNS", "BIND"), b.cpus.one)...)
		}
		return trials, nil
	},
	charts: func(rows []row) []chart {
		var out []chart
		for _, rows := range byWork(rows) {
			w := rows[0].Work
			name := "Answered under a flood, " + w
			if len(points(rows)) > 1 {
				out = append(out, lines("saturation-"+w, name, "q/s offered", "q/s answered", false, rows, rateOf))
				continue
			}
			out = append(out, bars("saturation-"+w, fmt.Sprintf("%s, %s", name, rows[0].Load), "q/s", rows, func(r row) (string, string) { return r.Server, "" }, rateOf))
		}
		return out
	},
}
