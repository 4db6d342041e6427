package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"
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
	return load{name: name + ", " + from, series: from, point: rate, rate: rate, least: least, ask: generate(rate, ports)}
}

// openLoop sends each query when it is due, whatever became of those before, or with rate 0 one when
// the last is answered. One thread does it all and never sleeps, so that no wake-up of the generator
// is in a latency: that of a timer alone is 50 us and more.
type openLoop struct {
	target    netip.AddrPort
	questions [][]byte
	rate      float64
	ports     int
	duration  time.Duration
}

// oneAtATime waits for each answer before the next question.
var oneAtATime = load{name: "one at a time", ask: generate(0, 1)}

func generate(rate float64, ports int) func(context.Context, *bench, place, work, time.Duration) (outcome, error) {
	return func(ctx context.Context, _ *bench, p place, w work, d time.Duration) (outcome, error) {
		questions, err := w.wire(100000)
		if err != nil {
			return outcome{}, err
		}
		return openLoop{target: p.addrPort(), questions: questions, rate: rate, ports: ports, duration: d}.run(ctx)
	}
}

// awake is loads with the server's CPUs kept from idling. They are on no chart.
func awake(loads []load) (out []load) {
	for _, l := range loads {
		l.name, l.awake, l.point = l.name+", CPU awake", true, 0
		out = append(out, l)
	}
	return out
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
