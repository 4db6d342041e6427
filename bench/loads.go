package main

import (
	"context"
	"fmt"
	"time"

	udpload "github.com/fastudp/fastudp/internal/load"
)

// closed is dnsperf with a number of clients.
func closed(clients int) load {
	return load{name: fmt.Sprintf("%s, dnsperf", plural(clients, "client")), point: float64(clients),
		ask: func(ctx context.Context, _ *bench, p place, w work, d time.Duration) (outcome, error) {
			return dnsperf(ctx, p, w, clients, d, w.questions, false)
		}}
}

// flood is kxdpgun at a rate. What the server has answered is counted at its end of the veth pair: a
// generator that is busy with sending may miss some.
func flood(rate float64) load {
	return load{name: fmt.Sprintf("%.0f q/s offered", rate), point: rate, rate: rate, netns: true,
		ask: func(ctx context.Context, b *bench, p place, w work, d time.Duration) (outcome, error) {
			before, err := b.veth.answers(ctx)
			if err != nil {
				return outcome{}, err
			}
			o, err := kxdpgun(ctx, b.veth, p, w, rate, b.cpus.load[0], d)
			if err != nil {
				return outcome{}, err
			}
			after, err := b.veth.answers(ctx)
			o.Seen, o.Answered = o.Answered, after-before
			o.Lost = o.Sent - min(o.Sent, o.Answered)
			return o, err
		}}
}

// open is our own generator at a rate, from a number of source ports.
func open(name string, rate float64, ports int, least time.Duration) load {
	from := plural(ports, "port")
	return load{name: name + ", " + from, series: from, point: rate, rate: rate, least: least,
		ask: func(ctx context.Context, _ *bench, p place, w work, d time.Duration) (outcome, error) {
			return generate(ctx, p, w, udpload.Config{Rate: rate, Sockets: ports, Duration: d})
		}}
}

// oneAtATime waits for each answer before the next question.
var oneAtATime = load{name: "one at a time", ask: func(ctx context.Context, _ *bench, p place, w work, d time.Duration) (outcome, error) {
	return generate(ctx, p, w, udpload.Config{Outstanding: 1, Sockets: 1, Duration: d})
}}

func generate(ctx context.Context, p place, w work, c udpload.Config) (outcome, error) {
	var err error
	if c.Questions, err = w.wire(100000); err != nil {
		return outcome{}, err
	}
	c.Target = p.addrPort()
	r, err := udpload.Run(ctx, c)
	if err != nil {
		return outcome{}, err
	}
	h := r.Latency
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtPercentile(q)) }
	return outcome{
		Sent: r.Sent, Answered: r.Answered, Lost: r.Lost, Late: r.Late, Elapsed: r.Elapsed,
		Latency: &latency{
			Average: time.Duration(h.Mean()), Min: time.Duration(h.Min()), Max: time.Duration(h.Max()), StdDev: time.Duration(h.StdDev()),
			P50: at(50), P99: at(99), P999: at(99.9),
		},
	}, nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
