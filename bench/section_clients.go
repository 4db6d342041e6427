package main

import "context"

var clientsSection = section{
	name: "clients", title: "Study 1: answered queries a second by clients",
	about: "The root-like zone on one CPU, each owner name and type in turn, without and with the DNSSEC OK bit. dnsperf -t 0.5 -q 1000 in a closed loop.",
	base:  stockName,
	plan: func(_ context.Context, b *bench) ([]trial, error) {
		var loads []load
		for _, n := range choose(b, []int{1, 2, 4, 8, 10}, []int{1, 10}) {
			loads = append(loads, closed(n))
		}
		servers := choose(b, b.pick(stockName, "multisocket+shed", fastudpName, "NSD"), b.pick(stockName, fastudpName, "NSD"))
		return append(b.floor(b.input["root"], b.cpus.one, loads...), cross(choose(b, b.works("root", "root-do"), b.works("root")), loads, servers, b.cpus.one)...), nil
	},
	charts: func(rows []row) []chart {
		var out []chart
		for _, rows := range byWork(without(floorName, rows)) {
			w := rows[0].Work
			out = append(out, lines("clients-"+w, "One CPU, "+w, "clients", "q/s", false, rows, rateOf))
		}
		return out
	},
}
