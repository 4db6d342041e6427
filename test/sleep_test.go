package test

import (
	"context"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/miekg/dns"
)

func init() { plugin.Register("sleep", setupSleep) }

// sleeper answers every question with an address: sleep-N.… after N milliseconds, spin-N.… after N microseconds of work,
// garbage-N.… after N KiB of it, a held name when the test lets it, all others at once. With the argument "fail" its setup fails, with "fail-startup" its startup.
type sleeper struct{}

// startups has what GetConfig gave at startup, by zone.
var startups sync.Map

func setupSleep(c *caddy.Controller) error {
	c.Next()
	how := ""
	if c.NextArg() {
		how = c.Val()
	}
	if how == "fail" {
		return c.Err("as asked")
	}
	cfg := dnsserver.GetConfig(c)
	cfg.AddPlugin(func(plugin.Handler) plugin.Handler { return sleeper{} })
	c.OnStartup(func() error {
		if how == "fail-startup" {
			return c.Err("as asked")
		}
		cfg := dnsserver.GetConfig(c)
		startups.Store(cfg.Zone, cfg.Handler("sleep"))
		return nil
	})
	return nil
}

// held has a *hold by question name.
var held sync.Map

// hold is a name whose queries do not return before release.
type hold struct {
	name    string
	release func()
	gate    chan struct{}
	entered atomic.Int64 // queries that have come to the gate
	written chan error   // what each WriteMsg returned
}

var holds atomic.Int64

func holdName(t *testing.T) *hold {
	h := &hold{
		name: "held-" + strconv.FormatInt(holds.Add(1), 10) + ".test.", gate: make(chan struct{}),
		written: make(chan error, 1<<14),
	}
	h.release = sync.OnceFunc(func() { close(h.gate) })
	held.Store(h.name, h)
	t.Cleanup(h.release)
	return h
}

// seen is what the handler sees of a query with a name that begins with "seen-".
type seen struct {
	server        any
	loop          any
	local, remote net.Addr
}

var seens sync.Map // by question name

var garbage atomic.Value // the last

var sleepName = regexp.MustCompile(`^(sleep|spin|garbage)-(\d+)\.`)

func (sleeper) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	name := strings.ToLower(r.Question[0].Name)
	if m := sleepName.FindStringSubmatch(name); m != nil {
		n, _ := strconv.Atoi(m[2])
		switch m[1] {
		case "sleep":
			time.Sleep(time.Duration(n) * time.Millisecond)
		case "garbage":
			for range n {
				garbage.Store(make([]byte, 1024))
			}
		default:
			for end := time.Now().Add(time.Duration(n) * time.Microsecond); time.Now().Before(end); {
			}
		}
	}
	if strings.HasPrefix(name, "seen-") {
		seens.Store(name, seen{ctx.Value(dnsserver.Key{}), ctx.Value(dnsserver.LoopKey{}), w.LocalAddr(), w.RemoteAddr()})
	}
	m := new(dns.Msg).SetReply(r)
	m.Authoritative = true
	m.Answer = []dns.RR{&dns.A{
		Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET},
		A:   net.IPv4(192, 0, 2, 1),
	}}
	if v, ok := held.Load(name); ok {
		h := v.(*hold)
		h.entered.Add(1)
		<-h.gate
		h.written <- w.WriteMsg(m)
		return 0, nil
	}
	return 0, w.WriteMsg(m)
}

func (sleeper) Name() string { return "sleep" }
