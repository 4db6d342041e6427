package main

import "context"

var peersSection = section{
	name: "peers", title: "Other name servers, each on its simplest answer",
	about: "One CPU and one thread or worker each, dnsperf with 4 clients, 1,000 names with an address each: from a zone file, with Unbound from local data; CoreDNS also with whoami and from its cache (hits). The echoes are the floor: what the system calls cost alone, and with fastudp's listener, unpacking and packing.",
	base:  floorName,
	plan: func(_ context.Context, b *bench) ([]trial, error) {
		ours := choose(b, b.pick(stockName, stockRarely, fastudpName, fastudpOften), b.pick(stockName, fastudpName))
		servers := append(append(b.pick(floorName, "echo in Go", "listener alone"), ours...), b.pick("NSD", "Knot", "Unbound", "PowerDNS", "BIND")...)
		l := closed(4)
		l.calls = !b.quick
		trials := cross(b.works("file"), []load{l}, servers, b.cpus.one)
		return append(trials, cross(b.works("whoami", "hits"), []load{l}, ours, b.cpus.one)...), nil
	},
	charts: func(rows []row) []chart {
		return []chart{bars("peers", "Other name servers, each on its simplest answer", "us", rows, func(r row) (string, string) { return r.Server + label(r), "" }, sample.CPU)}
	},
}

// label tells the work where it is not the one of all.
func label(r row) string {
	if r.Work == "file" {
		return ""
	}
	return " " + r.Work
}
