package main

import (
	"slices"
	"time"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// spread is a median and a range.
type spread struct{ Median, Min, Max float64 }

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	return spread{stat.Mean(v[(len(v)-1)/2:len(v)/2+1], nil), floats.Min(v), floats.Max(v)}
}

// sample is one trial's result. Times are in microseconds.
type sample struct {
	Round        int
	User, System float64 // CPU time for each answered query
	Busy         float64 // CPU time by wall time, for each CPU
	Others       float64 // of a hundred of the server's CPUs, what others took
	Rate         float64 // answered, a second
	Asked        float64 // sent, a second
	Lost         float64 // of a hundred
	Late         float64 // of a hundred
	Unseen       float64 // of a hundred answers, those that the generator has not seen
	PeakRSS      float64 // MiB
	ReadBatch    float64 // messages for each read and send; 0: unknown
	SendBatch    float64
	Syscalls     float64 // reads and sends for each answered query, by fastudp's metrics
	AllCalls     float64 // system calls of all kinds for each answered query; 0: not counted
	Request      float64 // bytes
	Response     float64

	Average, MinLatency, MaxLatency, StdDev, P50, P99, P999 float64
}

// CPU is the CPU time for each answered query.
func (s sample) CPU() float64 { return s.User + s.System }

func newSample(t trial, o outcome, before, after reading) sample {
	n := float64(o.Answered)
	user, system := after.usage.User-before.usage.User, after.usage.System-before.usage.System
	// The division into the two is by ticks, and of little CPU time it may even go backwards.
	user, system = max(0, min(user, user+system)), max(0, min(system, user+system))
	s := sample{
		User: micros(user) / n, System: micros(system) / n,
		Busy:    (user + system).Seconds() / o.Elapsed.Seconds() / float64(len(t.cpus)),
		Rate:    n / o.Elapsed.Seconds(),
		Asked:   float64(o.Sent) / o.Elapsed.Seconds(),
		Lost:    100 * ratio(float64(o.Lost), float64(o.Sent)),
		Late:    100 * ratio(float64(o.Late), float64(o.Sent)),
		PeakRSS: float64(after.usage.PeakRSS) / (1 << 20),
		Request: o.RequestSize, Response: o.ResponseSize,
	}
	if wall := after.at.Sub(before.at).Seconds() * float64(len(t.cpus)); wall > 0 {
		s.Others = 100 * max(0, (after.busy-before.busy-user-system).Seconds()/wall)
	}
	if o.Seen > 0 {
		s.Unseen = 100 * max(0, 1-float64(o.Seen)/n)
	}
	if l := o.Latency; l != nil {
		s.Average, s.MinLatency, s.MaxLatency, s.StdDev = micros(l.Average), micros(l.Min), micros(l.Max), micros(l.StdDev)
		s.P50, s.P99, s.P999 = micros(l.P50), micros(l.P99), micros(l.P999)
	}
	a, b := after.counters, before.counters
	s.ReadBatch = ratio(a.Received-b.Received, a.Reads-b.Reads)
	s.SendBatch = ratio(a.Sent-b.Sent, a.Sends-b.Sends)
	s.Syscalls = (a.Reads - b.Reads + a.Sends - b.Sends) / n
	return s
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// row is a server's samples of one work under one load.
type row struct {
	Work, Load, Server string
	Series             string  // of the load
	Point              float64 // of the load, on a chart's axis
	Open               bool    // queries come at a rate, whatever becomes of them
	Flood              bool    // offered at a rate that ought to saturate the server
	Samples            []sample
	Limited            string // by what, if not by the server
}

func (r row) spread(of func(sample) float64) spread {
	var v []float64
	for _, s := range r.Samples {
		v = append(v, of(s))
	}
	return spreadOf(v)
}

// ratios divides round by round: what disturbs a round disturbs both.
func ratios(a, b row, of func(sample) float64) spread {
	other := make(map[int]float64)
	for _, s := range b.Samples {
		other[s.Round] = of(s)
	}
	var v []float64
	for _, s := range a.Samples {
		if d := other[s.Round]; d > 0 {
			v = append(v, of(s)/d)
		}
	}
	return spreadOf(v)
}

const (
	nearLimit = 0.9 // of the generator's own rate
	fewLost   = 1   // of a hundred: an offered rate of which the server loses less does not saturate it
	fewLate   = 1   // of a hundred
)

// markLimited says of each row whether the generator was the limit, by what the same load got out of
// the echo in C.
func markLimited(rows []row) {
	limit := make(map[string]float64)
	for _, r := range rows {
		if r.Server == floorName {
			limit[r.Load] = max(limit[r.Load], r.spread(rateOf).Median)
		}
	}
	for i := range rows {
		r := &rows[i]
		rate := r.spread(rateOf).Median
		late := r.spread(func(s sample) float64 { return s.Late }).Median
		switch {
		case late > fewLate:
			r.Limited = "generator late"
		case r.Flood && r.spread(func(s sample) float64 { return s.Asked }).Median < nearLimit*r.Point:
			r.Limited = "generator slow"
		case r.Flood && r.spread(lostOf).Median < fewLost:
			r.Limited = "offered rate"
		case !r.Flood && !r.Open && r.Server != floorName && limit[r.Load] > 0 && rate > nearLimit*limit[r.Load]:
			r.Limited = "generator"
		}
	}
}

func rateOf(s sample) float64 { return s.Rate }
func lostOf(s sample) float64 { return s.Lost }
