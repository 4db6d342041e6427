// Package directive makes CoreDNS know a directive that its own build does not have.
package directive

import (
	"slices"

	"github.com/coredns/coredns/core/dnsserver"
)

// Insert puts a directive into CoreDNS's list behind another one. The order is that of the handlers.
func Insert(after, name string) {
	i := slices.Index(dnsserver.Directives, after)
	if i < 0 {
		panic("this CoreDNS has no directive " + after + ", which tells the place of " + name)
	}
	dnsserver.Directives = slices.Insert(dnsserver.Directives, i+1, name)
}
