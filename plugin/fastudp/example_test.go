package fastudp_test

import (
	"fmt"
	"log"
	"slices"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/whoami"
	"github.com/fastudp/fastudp/plugin/fastudp"

	"github.com/miekg/dns"
)

// A directive of the program's own, that takes its options from elsewhere than the Corefile.
func init() {
	plugin.Register("ourlistener", func(c *caddy.Controller) error {
		c.Next() // the directive's name
		options := fastudp.DefaultOptions()
		options.Sockets = 2
		options.Steer = fastudp.SteerRandom
		options.MaxInflight = 1000
		return fastudp.Attach(c, fmt.Sprintf("%s:%d", c.File(), c.Line()), options)
	})
	dnsserver.Directives = slices.Insert(dnsserver.Directives, 0, "ourlistener")
	dnsserver.Quiet = true
}

func ExampleAttach() {
	instance, err := caddy.Start(caddy.CaddyfileInput{
		Filepath:       "Corefile",
		Contents:       []byte(".:0 {\n bind 127.0.0.1\n ourlistener\n whoami\n}\n"),
		ServerTypeName: "dns",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer instance.Stop()

	udp := instance.Servers()[0].LocalAddr().String()
	answer, err := dns.Exchange(new(dns.Msg).SetQuestion("example.org.", dns.TypeA), udp)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Extra[0].(*dns.A).A)
	// Output: 127.0.0.1
}
