// Command minidns is CoreDNS with fastudp and the few plugins that its metrics are checked with. It
// builds in a fraction of the time of cmd/coredns.
package main

import (
	"slices"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/erratic"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/fastudp/fastudp"
)

func main() {
	i := slices.Index(dnsserver.Directives, "multisocket")
	if i < 0 {
		panic("this CoreDNS has no multisocket directive, which tells the place of fastudp")
	}
	dnsserver.Directives = slices.Insert(dnsserver.Directives, i+1, "fastudp")
	coremain.Run()
}
