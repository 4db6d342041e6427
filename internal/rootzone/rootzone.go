// Package rootzone makes a zone in the shape of the DNS root zone, out of made-up names and
// documentation addresses, for tests and measurements that need no network. It leaves out the
// signatures and the NSEC chain.
package rootzone

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

//go:generate go run ./cmd -o ../../zones/root-like.zone

// Seed is that of zones/root-like.zone.
const Seed = 1

const (
	delegations  = 1450 // as the root zone has, roughly
	twoLetter    = 250  // in the style of country codes
	idn          = 60   // in the style of internationalised names
	operators    = 24   // delegations whose name servers also serve others
	maxNS        = 8
	apexNS       = 13
	apexTLD      = "rootlike" // the delegation that holds the names of the apex's servers
	serial       = 2026010100
	apexTTL      = 518400
	dsTTL        = 86400
	delegatedTTL = 172800
)

// Generate writes the zone for a seed. The same seed gives the same bytes everywhere: math/rand/v2
// keeps the sequence of PCG.
func Generate(w io.Writer, seed int64) error {
	g := &generator{
		Rand: rand.New(rand.NewPCG(uint64(seed), 0)),
		out:  bufio.NewWriter(w),
	}
	tlds := g.delegate(g.names())
	slices.SortFunc(tlds, func(a, b tld) int { return strings.Compare(a.name, b.name) })

	g.printf("; A made-up zone in the shape of the DNS root zone, generated from seed %d; do not edit.\n", seed)
	g.printf("$ORIGIN .\n$TTL %d\n", delegatedTTL)
	g.apex()
	for _, t := range tlds {
		for _, host := range t.ns {
			g.printf("%s. NS %s\n", t.name, host)
		}
		g.ds(t.name)
		for _, host := range t.own {
			g.addresses(host, delegatedTTL)
		}
	}
	return g.out.Flush() // the first error of any write
}

type tld struct {
	name string
	own  []string // its name servers inside itself
	ns   []string // all its name servers
}

type generator struct {
	*rand.Rand
	out *bufio.Writer
}

func (g *generator) printf(format string, args ...any) { fmt.Fprintf(g.out, format, args...) }

func (g *generator) pick(from string) string { i := g.IntN(len(from)); return from[i : i+1] }

// names returns the distinct names of the delegations in no order.
func (g *generator) names() []string {
	// Special names of RFC 6761 and its kin are never delegated.
	taken := map[string]bool{"test": true, "example": true, "invalid": true, "local": true, "localhost": true, "onion": true, "alt": true}
	var names []string
	fill := func(upTo int, next func() string) {
		for len(names) < upTo {
			if n := next(); !taken[n] {
				taken[n] = true
				names = append(names, n)
			}
		}
	}
	const letters = "abcdefghijklmnopqrstuvwxyz"
	fill(1, func() string { return apexTLD })
	fill(1+twoLetter, func() string { return g.pick(letters) + g.pick(letters) })
	fill(1+twoLetter+idn, func() string {
		n := "xn--"
		for range 4 + g.IntN(8) {
			n += g.pick(letters + "0123456789")
		}
		return n
	})
	fill(delegations, g.word)
	g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// word returns a name of three letters or more that can be pronounced.
func (g *generator) word() string {
	onsets := strings.Fields("b br c cl d dr f fl g gr h j k l m n p pl pr r s st t tr v w z")
	endings := strings.Fields("a e o n r s t l x m nd ng rs st")
	n := ""
	for range 1 + g.IntN(4) {
		n += onsets[g.IntN(len(onsets))] + g.pick("aaeeiioouy")
	}
	return n + endings[g.IntN(len(endings))]
}

// delegate gives each name its servers: its own, an operator's, or some of both.
func (g *generator) delegate(names []string) []tld {
	var tlds []tld
	for i, name := range names {
		n, own := 4+g.IntN(maxNS-4+1), 0
		switch kind := g.IntN(10); {
		case i < operators || name == apexTLD:
			n, own = maxNS, maxNS
		case kind < 4:
			own = n
		case kind < 6:
			own = 1 + g.IntN(n-1)
		}
		t := tld{name: name, own: g.hosts(name, own)}
		t.ns = append(t.ns, t.own...)
		if own < n {
			t.ns = append(t.ns, tlds[g.IntN(operators)].own[:n-own]...)
		}
		tlds = append(tlds, t)
	}
	return tlds
}

// hosts names n servers under a delegation.
func (g *generator) hosts(name string, n int) []string {
	style := g.IntN(3)
	var hosts []string
	for i := range n {
		switch style {
		case 0:
			hosts = append(hosts, fmt.Sprintf("%c.nic.%s.", 'a'+i, name))
		case 1:
			hosts = append(hosts, fmt.Sprintf("ns%d.dns.%s.", i+1, name))
		case 2:
			hosts = append(hosts, fmt.Sprintf("%c.ns.%s.", 'a'+i, name))
		}
	}
	return hosts
}

func (g *generator) apex() {
	var hosts []string
	for i := range apexNS {
		hosts = append(hosts, fmt.Sprintf("%c.root-servers.%s.", 'a'+i, apexTLD))
	}
	g.printf(". %d SOA %s hostmaster.%s. %d 1800 900 604800 86400\n", dsTTL, hosts[0], apexTLD, serial)
	for _, host := range hosts {
		g.printf(". %d NS %s\n", apexTTL, host)
	}
	for _, host := range hosts {
		g.addresses(host, apexTTL)
	}
}

// addresses writes the glue of a host, from the ranges for documentation of RFC 5737 and RFC 3849.
func (g *generator) addresses(host string, ttl int) {
	owner := host
	if ttl != delegatedTTL {
		owner = fmt.Sprintf("%s %d", host, ttl)
	}
	nets := [...]string{"192.0.2", "198.51.100", "203.0.113"}
	g.printf("%s A %s.%d\n", owner, nets[g.IntN(len(nets))], 1+g.IntN(254))
	g.printf("%s AAAA 2001:db8:%x:%x::53\n", owner, 1+g.IntN(0xffff), 1+g.IntN(0xffff))
}

// ds writes one or two DS records, SHA-256 digests of RSA or ECDSA keys, for 92 of 100 delegations.
func (g *generator) ds(name string) {
	if g.IntN(100) >= 92 {
		return
	}
	algorithm := [...]int{8, 13}[g.IntN(2)]
	for range 1 + g.IntN(2) {
		g.printf("%s. %d DS %d %d 2 %016X%016X%016X%016X\n", name, dsTTL,
			1+g.IntN(0xffff), algorithm, g.Uint64(), g.Uint64(), g.Uint64(), g.Uint64())
	}
}

// Question is one that a zone has an answer or a referral for.
type Question struct {
	Name string
	Type uint16
}

// Questions returns the owner names of a root zone with their types, each pair once and sorted. It
// leaves out NSEC, RRSIG and ZONEMD, so that the real root zone gives the questions of this one.
func Questions(zone io.Reader) ([]Question, error) {
	var questions []Question
	zp := dns.NewZoneParser(zone, ".", "")
	for rr, ok := zp.Next(); ok; rr, ok = zp.Next() {
		switch h := rr.Header(); h.Rrtype {
		case dns.TypeNSEC, dns.TypeRRSIG, dns.TypeZONEMD:
		default:
			questions = append(questions, Question{dns.CanonicalName(h.Name), h.Rrtype})
		}
	}
	if err := zp.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(questions, func(a, b Question) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
	})
	return slices.Compact(questions), nil
}
