package fastudp

import (
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/parse"
	"github.com/coredns/coredns/plugin/pkg/transport"

	"github.com/miekg/dns"
	"github.com/pires/go-proxyproto"
)

// address is one listen address that is ours, with all that its server blocks ask of it. Several
// servers share it under multisocket.
type address struct {
	at      string // file:line of the directive that decided
	opts    Options
	servers int // servers on this address
	started int // of them, how many have been made
	budget  *budget
	proxy   proxyOptions
	tsig    map[string]string // secrets by key

	decorators *sync.Map // *dnsserver.Server to dns.DecorateWriter
}

// proxyOptions are what the proxyproto plugin asks of a listener.
type proxyOptions struct {
	policy      proxyproto.ConnPolicyFunc
	ttl         time.Duration
	maxSessions int
	tlvs        bool
}

// addresses finds the listen addresses of the blocks with the directive, and what every block that
// shares one asks of it. It must be called while CoreDNS's context is in place.
func (t *takeover) addresses() (map[string]*address, error) {
	ours := make(map[string]*address)
	type site struct{ own, first *dnsserver.Config } // first is that of its block's first key
	shared := make(map[string][]site)                // in Corefile order, as CoreDNS groups them
	decorators := new(sync.Map)
	for i, b := range t.blocks {
		req, asked := t.asked[i]
		keys, err := configsOf(b.Keys)
		if err != nil {
			return nil, err
		}
		first, err := t.config(i, 0)
		if err != nil {
			return nil, err
		}
		rememberDecorator(first, decorators)
		for j := range keys {
			cfg, err := t.config(i, j)
			if err != nil {
				return nil, err
			}
			if cfg.Transport != transport.DNS {
				continue
			}
			// CoreDNS copies the first key's hosts to the block's other keys when it makes the servers.
			for _, h := range first.ListenHosts {
				addr, err := listenAddr(cfg, h)
				if err != nil {
					return nil, err
				}
				shared[addr] = append(shared[addr], site{cfg, first})
				if !asked {
					continue
				}
				if a := ours[addr]; a == nil {
					ours[addr] = &address{at: req.at, opts: req.opts, decorators: decorators, tsig: make(map[string]string)}
				} else if d := req.opts.diff(a.opts); d != "" {
					return nil, fmt.Errorf("plugin/fastudp: %s - the options differ (%s) from those at %s, but both blocks share the listener %s; write the same options in both or fastudp in one only", req.at, d, a.at, addr)
				}
			}
		}
	}
	for addr, a := range ours {
		for _, s := range shared[addr] {
			a.proxy.add(s.own)
			maps.Copy(a.tsig, s.first.TsigSecret)
		}
	}
	return ours, nil
}

// add takes cfg's settings as dnsserver.NewServer does: the last block that sets one wins.
func (p *proxyOptions) add(cfg *dnsserver.Config) {
	if cfg.ProxyProtoConnPolicy != nil {
		p.policy = cfg.ProxyProtoConnPolicy
	}
	if cfg.ProxyProtoUDPSessionTrackingTTL > 0 {
		p.ttl = cfg.ProxyProtoUDPSessionTrackingTTL
	}
	if cfg.ProxyProtoUDPSessionTrackingMaxSessions > 0 {
		p.maxSessions = cfg.ProxyProtoUDPSessionTrackingMaxSessions
	}
	if f := optionalField(cfg, "ProxyProtoTLVMetadata"); f.IsValid() {
		p.tlvs = p.tlvs || f.Bool()
	}
}

// optionalField is a field that CoreDNS v1.15 has and v1.14 does not.
func optionalField(of any, name string) reflect.Value {
	return reflect.ValueOf(of).Elem().FieldByName(name)
}

// config is the Config of key j of block i. CoreDNS makes an empty one for indices it does not know.
func (t *takeover) config(i, j int) (*dnsserver.Config, error) {
	c := t.ctl
	c.ServerBlockIndex, c.ServerBlockKeyIndex = i, j
	cfg := dnsserver.GetConfig(&c)
	if cfg == nil || cfg.Port == "" {
		return nil, fmt.Errorf("plugin/fastudp: server block %d of the Corefile is not the one that was set up: did an imported file change meanwhile?", i+1)
	}
	return cfg, nil
}

// configsOf repeats keys as often as CoreDNS makes a Config of each: a reverse network may become several zones.
func configsOf(keys []string) ([]string, error) {
	var all []string
	for _, k := range keys {
		_, zone := parse.Transport(k)
		hosts, _, err := plugin.SplitHostPort(zone)
		if err != nil {
			return nil, err
		}
		all = append(all, slices.Repeat([]string{k}, len(hosts))...)
	}
	return all, nil
}

// listenAddr is the address by which CoreDNS groups cfg's listener on host.
func listenAddr(cfg *dnsserver.Config, host string) (string, error) {
	a, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, cfg.Port))
	if err != nil {
		return "", err
	}
	return cfg.Transport + "://" + a.String(), nil
}

// rememberDecorator keeps what cfg's writer decorator makes for a server: it is made once a server,
// and both the ordinary and the stock path need it.
func rememberDecorator(cfg *dnsserver.Config, made *sync.Map) {
	decorate := cfg.UDPDecorateWriterFunc
	if decorate == nil {
		return
	}
	cfg.UDPDecorateWriterFunc = func(s *dnsserver.Server) dns.DecorateWriter {
		if d, ok := made.Load(s); ok {
			return d.(dns.DecorateWriter)
		}
		d := decorate(s)
		made.Store(s, d)
		return d
	}
}

// share is how many of the address's sockets server i of its servers gets, at least one.
func (a *address) share(i int) int {
	n := a.opts.Sockets / a.servers
	if i < a.opts.Sockets%a.servers {
		n++
	}
	return max(n, 1)
}

// sockets is how many sockets all servers of the address have together.
func (a *address) sockets() int { return max(a.opts.Sockets, a.servers) }
