package main

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"
)

// responder answers every query but each tenth, and each twentieth twice.
func responder(t *testing.T) netip.AddrPort {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetReadBuffer(4 << 20)
	go func() {
		b := make([]byte, 512)
		for n := 1; ; n++ {
			k, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if n%10 == 0 {
				continue
			}
			c.WriteToUDPAddrPort(b[:k], from)
			if n%20 == 1 {
				c.WriteToUDPAddrPort(b[:k], from)
			}
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestOpenLoop(t *testing.T) {
	target := responder(t)
	for _, ports := range []int{1, 3} {
		o, err := openLoop{target: target, questions: [][]byte{make([]byte, 30)}, rate: 2000, ports: ports, duration: 500 * time.Millisecond}.run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The rate is kept whatever the machine does: what was late is sent.
		if o.Sent < 999 || o.Sent > 1001 || o.Sent != o.Answered+o.Lost {
			t.Errorf("%d ports: sent %d, answered %d, lost %d", ports, o.Sent, o.Answered, o.Lost)
		}
		if o.Lost < 99 || o.Lost > 101 || o.Latency.P50 <= 0 || o.Latency.P99 < o.Latency.P50 {
			t.Errorf("%d ports: lost %d, %+v", ports, o.Lost, o.Latency)
		}
	}
}

// TestOneAtATime goes on after a lost query.
func TestOneAtATime(t *testing.T) {
	o, err := openLoop{target: responder(t), questions: [][]byte{make([]byte, 30)}, ports: 1, duration: 3 * openTimeout}.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.Lost < 2 || o.Lost > 4 || o.Sent != o.Answered+o.Lost || o.Answered < 9*(o.Lost-1) {
		t.Errorf("sent %d, answered %d, lost %d", o.Sent, o.Answered, o.Lost)
	}
}

func TestOpenLoopEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (openLoop{target: responder(t), questions: [][]byte{make([]byte, 30)}, rate: 1000, ports: 1, duration: time.Minute}).run(ctx); err == nil {
		t.Error("no error although the context ended")
	}
}
