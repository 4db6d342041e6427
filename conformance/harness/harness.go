// Package harness is what the copy of CoreDNS under test calls: it hands every Corefile through
// corefile.AddDirective and records what fastudp received. Nothing else imports it.
//
// It is linked into coremain, so it must not import package testing, which registers flags.
package harness

import (
	"slices"
	"sync"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/prometheus/client_golang/prometheus"

	_ "github.com/fastudp/fastudp" // tests that embed CoreDNS import their plugins themselves
	"github.com/fastudp/fastudp/conformance/corefile"
	"github.com/fastudp/fastudp/conformance/counts"
)

var recorder = counts.Start(prometheus.DefaultGatherer)

// Main runs the tests of a package, m being its *testing.M, and returns the exit status.
func Main(m interface{ Run() int }) int {
	defer Count()
	return m.Run()
}

// Count records what fastudp has received up to now. The counters of a server end with it.
func Count() { recorder.Flush() }

// Counted returns x after Count, so that x.Stop() can be had to count first.
func Counted[T any](x T) T {
	Count()
	return x
}

// Input returns in with the directive in its Corefile. It counts as well: in may be for a restart, which
// stops servers.
func Input(in caddy.Input) caddy.Input {
	Count()
	if in == nil || in.ServerType() != "dns" {
		return in
	}
	was := string(in.Body())
	is := corefile.AddDirective(was)
	if is == was {
		return in
	}
	allowDirective()
	return caddy.CaddyfileInput{Filepath: in.Path(), Contents: []byte(is), ServerTypeName: in.ServerType()}
}

// Loader returns a loader that loads what l does, with the directive: a reload reads the Corefile
// itself.
func Loader(l caddy.Loader) caddy.Loader {
	return caddy.LoaderFunc(func(serverType string) (caddy.Input, error) {
		in, err := l.Load(serverType)
		return Input(in), err
	})
}

var directives sync.Mutex

// allowDirective adds the directive for tests that choose their own list of directives.
func allowDirective() {
	directives.Lock()
	defer directives.Unlock()
	if slices.Contains(dnsserver.Directives, corefile.Directive) {
		return
	}
	at := slices.Index(dnsserver.Directives, "multisocket") + 1
	dnsserver.Directives = slices.Insert(slices.Clone(dnsserver.Directives), at, corefile.Directive)
}
