package fastudp_test

import (
	"io"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

// TestEmbedding puts the directive at every place of the list that a program may choose, reloads, and
// looks whose listener it is.
func TestEmbedding(t *testing.T) {
	quiet(t)
	for _, directives := range []string{"fastudp bind template", "bind fastudp template", "bind template fastudp"} {
		t.Run(directives, func(t *testing.T) {
			dnsserver.Directives = strings.Fields(directives)
			instance := start(t, corefile)
			checkServes(t, instance, true)
			for _, next := range []struct {
				corefile string
				fastudp  bool
			}{
				{strings.Replace(corefile, "fastudp 2", "fastudp 3", 1), true},
				{withoutFastudp(corefile), false},
				{corefile, true},
			} {
				var err error
				if instance, err = instance.Restart(input(next.corefile)); err != nil {
					t.Fatal(err)
				}
				checkServes(t, instance, next.fastudp)
			}
		})
	}
}

// TestEmbeddingTwice has two instances of one program, one of them without fastudp.
func TestEmbeddingTwice(t *testing.T) {
	quiet(t)
	dnsserver.Directives = []string{"bind", "fastudp", "template"}
	first := start(t, corefile)
	second := start(t, withoutFastudp(corefile))
	third := start(t, corefile)
	checkServes(t, first, true)
	checkServes(t, second, false)
	checkServes(t, third, true)
}

// TestEmbeddingForgotten names the directive nowhere, which must not go unnoticed.
func TestEmbeddingForgotten(t *testing.T) {
	quiet(t)
	dnsserver.Directives = []string{"bind", "template"}
	instance, err := caddy.Start(input(corefile))
	if err == nil {
		instance.Stop()
		t.Fatal("started without an error")
	}
	if !strings.Contains(err.Error(), "fastudp") {
		t.Errorf("the error does not name the directive: %v", err)
	}
}

// quiet keeps the lists of zones and the log out of the output, and what a test does to the
// directives out of the other tests.
func quiet(t *testing.T) {
	directives, was := dnsserver.Directives, dnsserver.Quiet
	dnsserver.Quiet = true
	log.SetOutput(io.Discard)
	t.Cleanup(func() {
		dnsserver.Directives, dnsserver.Quiet = directives, was
		log.SetOutput(os.Stderr)
	})
}

func input(corefile string) caddy.CaddyfileInput {
	return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"}
}

func start(t *testing.T, corefile string) *caddy.Instance {
	t.Helper()
	instance, err := caddy.Start(input(corefile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, i := range caddy.Instances() { // a reload has put another in its place
			i.ShutdownCallbacks()
			i.Stop()
		}
	})
	return instance
}

// withoutFastudp is a Corefile without the directive and its block.
func withoutFastudp(corefile string) string {
	before, rest, _ := strings.Cut(corefile, "    fastudp 2 {")
	_, after, _ := strings.Cut(rest, "    }\n")
	return before + after
}

// checkServes asks over UDP and TCP, and looks whether fastudp has counted the UDP query.
func checkServes(t *testing.T, instance *caddy.Instance, fastudp bool) {
	t.Helper()
	server := instance.Servers()[0]
	udp := server.LocalAddr().String()
	before := received(t, udp)
	for network, addr := range map[string]string{"udp": udp, "tcp": server.Addr().String()} {
		client := dns.Client{Net: network}
		answer, _, err := client.Exchange(new(dns.Msg).SetQuestion("www.example.org.", dns.TypeA), addr)
		if err != nil {
			t.Fatalf("%s: %v", network, err)
		}
		if len(answer.Answer) != 1 {
			t.Errorf("%s: %v", network, answer)
		}
	}
	if counted := received(t, udp) - before; fastudp && counted != 1 || !fastudp && counted != 0 {
		t.Errorf("fastudp has received %v queries", counted)
	}
}

// received is how many datagrams fastudp has received at addr.
func received(t *testing.T, addr string) (total float64) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "coredns_fastudp_received_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "server" && l.GetValue() == "dns://"+addr {
					total += m.GetCounter().GetValue()
				}
			}
		}
	}
	return total
}
