package main

import (
	"testing"
	"time"

	"github.com/coredns/coredns/plugin/metrics/vars"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// BenchmarkReport is what CoreDNS's prometheus plugin adds to counters that all its CPUs share, once a
// query. Twice the CPUs ought to halve the time:
//
//	go test -run '^$' -bench 'Report|Allocate' -cpu 1,2 ./bench
func BenchmarkReport(b *testing.B) {
	m := new(dns.Msg).SetQuestion("example.org.", dns.TypeA)
	start := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		r := request.Request{W: new(test.ResponseWriter), Req: m}
		for pb.Next() {
			vars.Report("dns://:53", r, ".", "", "NOERROR", "cache", 100, start)
		}
	})
}

var sink [64][]*dns.Msg

// BenchmarkAllocate is the allocator and the collector alone: messages with a name, of which the last
// thousand of each goroutine are alive.
func BenchmarkAllocate(b *testing.B) {
	b.ReportAllocs()
	next := make(chan int, len(sink))
	for i := range sink {
		next <- i
	}
	b.RunParallel(func(pb *testing.PB) {
		i := <-next
		live := make([]*dns.Msg, 1000)
		sink[i] = live
		for n := 0; pb.Next(); n++ {
			m := new(dns.Msg)
			m.Question = []dns.Question{{Name: string([]byte("n1.example.org."))}}
			live[n%len(live)] = m
		}
	})
}
