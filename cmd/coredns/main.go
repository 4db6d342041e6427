// Command coredns is CoreDNS with every stock plugin and fastudp.
package main

import (
	_ "github.com/coredns/coredns/core/plugin" // every stock plugin
	"github.com/coredns/coredns/coremain"
	_ "github.com/fastudp/fastudp"
	"github.com/fastudp/fastudp/internal/directive"
)

func main() {
	directive.Insert("multisocket", "fastudp")
	coremain.Run()
}
