// Command minidns is CoreDNS with fastudp and the few plugins that its metrics are checked with. It
// builds in a fraction of the time of cmd/coredns.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/erratic"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/fastudp/fastudp"
	"github.com/fastudp/fastudp/internal/directive"
)

func main() {
	directive.Insert("multisocket", "fastudp")
	coremain.Run()
}
