package main

import "context"

var cpuSection = section{
	name: "cpu", title: "CPU time for each answered query",
	about: "One CPU, dnsperf with 4 clients. What a cache misses is asked of an upstream that takes 20 ms; the share of the misses is in the work's name. root is the signed root-like zone, root-do the same with the DNSSEC OK bit.",
	base:  stockName,
	plan: func(_ context.Context, b *bench) ([]trial, error) {
		works := choose(b, b.works("whoami", "file", "hits", "miss-1%", "miss-10%", "miss-100%", "root", "root-do", "root-cache", "kubernetes"),
			b.works("whoami", "file", "hits", "miss-10%", "root", "root-do", "kubernetes"))
		l := closed(4)
		l.calls = !b.quick
		trials := append(b.floor(works[0], b.cpus.one, l), cross(works, []load{l}, b.pick(stockName, fastudpName), b.cpus.one)...)
		if !b.quick {
			trials = append(trials, cross(b.works("hits", "miss-10%"), []load{l}, b.pick(stockRarely, fastudpOften), b.cpus.one)...)
		}
		return trials, nil
	},
	charts: func(rows []row) []chart {
		return []chart{bars("cpu", "CPU time for each answered query", "us", only(rows, stockName, fastudpName), func(r row) (string, string) { return r.Work, r.Server }, sample.CPU)}
	},
}
