package fastudp_test

import (
	"fmt"
	"log"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind"     // a plugin for each directive
	_ "github.com/coredns/coredns/plugin/template" // of the Corefile
	_ "github.com/fastudp/fastudp"

	"github.com/miekg/dns"
)

// Port 0 is any free one.
const corefile = `
.:0 {
    bind 127.0.0.1
    fastudp 2 {
        max_inflight 1000
    }
    template IN A example.org {
        answer "{{ .Name }} 60 IN A 192.0.2.1"
    }
}`

// A program that embeds CoreDNS has fastudp by importing it and naming its directive among the others,
// which must be so before the first instance starts. CoreDNS reads the directives of a block, and asks
// the plugins, in the order of this list; the place of fastudp in it does not matter.
func Example() {
	dnsserver.Directives = []string{"bind", "fastudp", "template"}
	dnsserver.Quiet = true // no list of zones on standard output

	instance, err := caddy.Start(caddy.CaddyfileInput{
		Filepath:       "Corefile",
		Contents:       []byte(corefile),
		ServerTypeName: "dns",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		instance.ShutdownCallbacks() // what plugins do at the end
		instance.Stop()              // answers what has been received
	}()

	udp := instance.Servers()[0].LocalAddr().String()
	answer, err := dns.Exchange(new(dns.Msg).SetQuestion("www.example.org.", dns.TypeA), udp)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Answer[0])
	// Output: www.example.org.	60	IN	A	192.0.2.1
}
