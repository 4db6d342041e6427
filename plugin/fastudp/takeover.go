// Package fastudp serves the plain DNS UDP listeners of CoreDNS: several sockets for an address, system
// calls for whole batches, and handlers that run on the goroutine that took the query. Attach, called where
// a directive is set up, gives it the listeners of a server block; the directive fastudp, of the package
// at the root of the module, does so with options from the Corefile.
package fastudp

// CoreDNS has no hook for a UDP listener, so this file makes one from what caddy exports. It is all
// that knows how; docs/seam.md tells the steps and the hook that would make it unnecessary.

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin/pkg/parse"
	"github.com/coredns/coredns/plugin/pkg/transport"
)

// seamType is the caddy server type that lends an instance our context. It has no directives of its own.
const seamType = "fastudp"

const dnsType = "dns"

func init() {
	caddy.RegisterServerType(seamType, caddy.ServerType{
		Directives: func() []string { return nil },
		NewContext: func(inst *caddy.Instance) caddy.Context {
			if t := takeoverOf(inst); t != nil && t.next != nil {
				return t.next
			}
			return nil
		},
	})
	afterLastDirective()
}

// takeoverKey finds an instance's takeover in its Storage.
type takeoverKey struct{}

// takeover is what we keep for one caddy.Instance that has a block with the directive.
type takeover struct {
	ctl    caddy.Controller // a copy, to reach any block's Config by its indices
	dns    caddy.Context    // CoreDNS's own context
	next   caddy.Context    // what the next NewContext of seamType hands out
	blocks []caddyfile.ServerBlock
	asked  map[int]request // by server block index

	servers []*server
	made    bool
}

// request is one block's directive.
type request struct {
	at   string // file:line
	opts Options
}

// Attach makes the plain DNS UDP listeners of c's server block ours. at is the directive's file:line.
func Attach(c *caddy.Controller, at string, o Options) error {
	if err := o.check(); err != nil {
		return fmt.Errorf("%s - %w", at, err)
	}
	if len(c.ServerBlockKeys) > 0 && !anyPlainDNS(c.ServerBlockKeys) {
		return fmt.Errorf("%s - none of the keys %q has a plain DNS listener; fastudp needs one with dns:// or no scheme", at, c.ServerBlockKeys)
	}
	t, _ := c.Get(takeoverKey{}).(*takeover)
	if t == nil {
		t = &takeover{ctl: *c, dns: c.Context(), asked: make(map[int]request)}
		c.Set(takeoverKey{}, t)
		c.OnStartup(t.verify)
		c.OnRestart(t.offer)
		c.OnRestartFailed(t.withdraw)
	}
	t.asked[c.ServerBlockIndex] = request{at, o}
	afterLastDirective()
	return nil
}

func anyPlainDNS(keys []string) bool {
	for _, k := range keys {
		if tr, _ := parse.Transport(k); tr == transport.DNS {
			return true
		}
	}
	return false
}

var callbacks struct {
	sync.Mutex
	after map[string]bool
}

// afterLastDirective has caddy call us when every directive of every block has been set up. An
// embedding program may choose its directives after our init, hence the second call from Attach.
func afterLastDirective() {
	last := lastDirective()
	callbacks.Lock()
	defer callbacks.Unlock()
	if last == "" || callbacks.after[last] {
		return
	}
	if callbacks.after == nil {
		callbacks.after = make(map[string]bool)
	}
	callbacks.after[last] = true
	caddy.RegisterParsingCallback(dnsType, last, func(ctx caddy.Context) error {
		if last != lastDirective() {
			return nil
		}
		for _, inst := range caddy.Instances() {
			if t := takeoverOf(inst); t != nil && t.dns == ctx {
				return t.enter(inst)
			}
		}
		return nil // no block has the directive
	})
}

func lastDirective() string {
	if d := dnsserver.Directives; len(d) > 0 {
		return d[len(d)-1]
	}
	return ""
}

func takeoverOf(inst *caddy.Instance) *takeover {
	inst.StorageMu.RLock()
	defer inst.StorageMu.RUnlock()
	t, _ := inst.Storage[takeoverKey{}].(*takeover)
	return t
}

// enter puts our context into inst. It also parses the Corefile as caddy did, to know all server blocks.
func (t *takeover) enter(inst *caddy.Instance) error {
	type result struct {
		blocks []caddyfile.ServerBlock
		err    error
	}
	parsed := make(chan result, 1)
	go func() {
		corefile := inst.Caddyfile()
		blocks, err := caddyfile.Parse(corefile.Path(), bytes.NewReader(corefile.Body()), dnsserver.Directives)
		parsed <- result{blocks, err}
	}()
	select {
	case r := <-parsed:
		if r.err != nil {
			return r.err
		}
		t.blocks = r.blocks
	case <-time.After(parseLimit):
		return fmt.Errorf("fastudp: %s: reading its imports a second time takes more than %v: is one of them a pipe?", inst.Caddyfile().Path(), parseLimit)
	}
	return t.swap(inst, &seamContext{t: t, inst: inst})
}

// parseLimit is how long the second parsing may take. A pipe has nothing more to say, for ever.
var parseLimit = 10 * time.Second

// leave puts CoreDNS's context back: plugins reach their Config through it at startup.
func (t *takeover) leave(inst *caddy.Instance) error { return t.swap(inst, t.dns) }

// swap makes to the context of inst. While caddy does it the input is empty, so that no directive is
// executed again. Afterwards it says what the Corefile says. It is a pointer to caddy's own type,
// which SIGUSR2 can send to the next process.
func (t *takeover) swap(inst *caddy.Instance, to caddy.Context) error {
	was := inst.Caddyfile()
	corefile := caddy.CaddyfileInput{Filepath: was.Path(), Contents: was.Body(), ServerTypeName: was.ServerType()}
	in := &caddy.CaddyfileInput{ServerTypeName: seamType}
	t.next = to
	err := caddy.ValidateAndExecuteDirectives(in, inst, false)
	t.next = nil
	*in = corefile
	if err != nil {
		return fmt.Errorf("fastudp: taking over the listeners: %w", err)
	}
	if t.ctl.Context() != to {
		return errSeam
	}
	return nil
}

var errSeam = errors.New("fastudp: this version of CoreDNS or caddy does not let a plugin take over its UDP listeners; remove fastudp from the Corefile or use a version that fastudp names as supported")

// verify runs before the servers start: an instance that skipped a step must not serve by stock unnoticed.
func (t *takeover) verify() error {
	if !t.made || t.ctl.Context() != t.dns {
		return errSeam
	}
	return nil
}

// seamContext is our caddy.Context.
type seamContext struct {
	t    *takeover
	inst *caddy.Instance
}

// InspectServerBlocks has nothing to inspect: CoreDNS has done it.
func (s *seamContext) InspectServerBlocks(_ string, blocks []caddyfile.ServerBlock) ([]caddyfile.ServerBlock, error) {
	return blocks, nil
}

// MakeServers has CoreDNS make its servers and replaces those whose listener is ours.
func (s *seamContext) MakeServers() ([]caddy.Server, error) {
	if err := s.t.leave(s.inst); err != nil {
		return nil, err
	}
	addresses, ourErr := s.t.addresses()
	servers, err := s.t.dns.MakeServers() // also if ours is a failure: what it says comes first
	if err == nil {
		err = ourErr
	}
	if err != nil {
		return nil, err
	}
	for _, srv := range servers {
		if stock, ok := srv.(*dnsserver.Server); ok && addresses[stock.Addr] != nil {
			addresses[stock.Addr].servers++
		}
	}
	for _, a := range addresses {
		a.budget = newBudget(a.opts.MaxInflight, a.sockets())
	}
	for i, srv := range servers {
		stock, ok := srv.(*dnsserver.Server)
		if !ok || addresses[stock.Addr] == nil {
			continue
		}
		ours := newServer(stock, addresses[stock.Addr])
		ours.inherit()
		s.t.servers = append(s.t.servers, ours)
		servers[i] = ours
	}
	s.t.made = true
	return servers, nil
}
