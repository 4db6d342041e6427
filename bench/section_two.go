package main

import "context"

var twoSection = section{
	name: "two", title: "Two CPUs",
	about: "The root-like zone, GOMAXPROCS 2 on two CPUs, dnsperf. fastudp with two sockets, the kernel's choice by flow hash, at random and by the CPU that took the packet: one client's flow hash always gives the same socket. Then under a flood from kxdpgun, which needs less CPU time for a query and leaves more to a server that shares the CPUs with it. Beside it fastudp with one socket on one CPU.",
	base:  stockName,
	plan: func(ctx context.Context, b *bench) ([]trial, error) {
		if b.shared {
			b.leave("CPUs of its own for the load of section two: the machine has too few, so server and load share two, and the rates there say little")
		}
		servers := append(b.pick(stockName, "multisocket+shed", "fastudp 2 hash", "fastudp 2 random"), choose(b, b.pick("multisocket", "fastudp 2 cpu", fastudpName, "fastudp 4 hash"), nil)...)
		loads := choose(b, []load{closed(1), closed(10)}, []load{closed(10)})
		single := b.servers[fastudpName]
		single.name = "fastudp 1, one CPU"
		trials := append(b.floor(b.input["root"], b.cpus.two, loads...), cross(b.works("root"), loads, servers, b.cpus.two)...)
		trials = append(trials, cross(b.works("root"), loads, []server{single}, b.cpus.one)...)
		if b.quick {
			return trials, nil
		}
		if err := b.needVeth(ctx); err != nil {
			b.leave("the floods of section two: %v", err)
			return trials, ctx.Err()
		}
		floods := []load{flood(100e3), flood(150e3)}
		trials = append(trials, cross(b.works("root"), floods, b.pick(stockName, "fastudp 2 hash", "fastudp 2 random"), b.cpus.two)...)
		return append(trials, cross(b.works("root"), floods, []server{single}, b.cpus.one)...), nil
	},
	charts: func(rows []row) []chart {
		return []chart{bars("two", "Two CPUs, root-like zone", "q/s", without(floorName, rows), func(r row) (string, string) { return r.Server, r.Load }, rateOf)}
	},
}
