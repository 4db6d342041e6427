// Command echo is CoreDNS with fastudp and a handler that only turns the query into a response: what
// the listener, unpacking and packing cost, without a plugin's work.
package main

import (
	"context"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/fastudp/fastudp"
	"github.com/miekg/dns"
)

func init() {
	plugin.Register("echo", func(c *caddy.Controller) error {
		c.Next()
		dnsserver.GetConfig(c).AddPlugin(func(plugin.Handler) plugin.Handler { return handler{} })
		return nil
	})
}

type handler struct{}

func (handler) Name() string { return "echo" }

func (handler) ServeDNS(_ context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
	m.Response = true
	return dns.RcodeSuccess, w.WriteMsg(m)
}

func main() {
	dnsserver.Directives = []string{"bind", "fastudp", "prometheus", "echo"}
	coremain.Run()
}
