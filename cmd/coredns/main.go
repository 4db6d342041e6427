// Command coredns is CoreDNS with every stock plugin and fastudp.
package main

import (
	"slices"

	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/core/plugin" // every stock plugin
	"github.com/coredns/coredns/coremain"
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
