package main

import (
	"net"
	"testing"

	"github.com/miekg/dns"
)

func TestAsk(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan dns.Question, 1)
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		asked <- r.Question[0]
		w.WriteMsg(new(dns.Msg).SetReply(r))
	})}
	go srv.ActivateAndServe()
	defer srv.Shutdown()

	if err := ask(pc.LocalAddr().String(), []string{"ns", "rootlike"}); err != nil {
		t.Fatal(err)
	}
	if q := <-asked; q.Name != "rootlike." || q.Qtype != dns.TypeNS {
		t.Errorf("asked %v, want NS of rootlike.", q)
	}
	for _, bad := range [][]string{{}, {"NS"}, {"NOSUCH", "rootlike"}, {"NS", "a", "b"}} {
		if ask(pc.LocalAddr().String(), bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
