// Package fastudp registers the fastudp directive, with which a CoreDNS server block has its plain
// DNS UDP listeners served by package plugin/fastudp instead of by the stock loop:
//
//	fastudp [SOCKETS] {
//	    batch N
//	    fairness_cap N
//	    read_buffer SIZE
//	    write_buffer SIZE
//	    steer hash|cpu|random
//	    max_inflight N
//	    gc_growth SIZE|off
//	}
//
// It puts no handler into the plugin chain.
package fastudp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/plugin"
	"github.com/dustin/go-humanize"
	listener "github.com/fastudp/fastudp/plugin/fastudp"
)

const name = "fastudp"

func init() { plugin.Register(name, setup) }

func setup(c *caddy.Controller) error {
	at, opts, err := parse(c)
	if err == nil {
		err = listener.Attach(c, at, opts)
	}
	if err != nil {
		return plugin.Error(name, err)
	}
	return nil
}

// value is what an argument may be, in words for the error, and how to store it.
type value struct {
	accepts string
	set     func(o *listener.Options, arg string) bool // false if arg is not acceptable
}

var sockets = value{
	accepts: fmt.Sprintf("a whole number from 1 to %d, or auto, which is GOMAXPROCS", listener.MaxSockets),
	set: func(o *listener.Options, arg string) bool {
		return arg == "auto" || setWhole(&o.Sockets, arg, 1, listener.MaxSockets)
	},
}

// properties are in the order of the documentation, which is how errors list them.
var properties = []struct {
	name string
	value
}{
	{"batch", whole(1, listener.MaxBatch, func(o *listener.Options) *int { return &o.Batch })},
	{"fairness_cap", whole(1, listener.MaxFairnessCap, func(o *listener.Options) *int { return &o.FairnessCap })},
	{"read_buffer", size(listener.MinBuffer, listener.MaxBuffer, func(o *listener.Options) *int { return &o.ReadBuffer })},
	{"write_buffer", size(listener.MinBuffer, listener.MaxBuffer, func(o *listener.Options) *int { return &o.WriteBuffer })},
	{"steer", steer(listener.SteerHash, listener.SteerCPU, listener.SteerRandom)},
	{"max_inflight", whole(0, listener.MaxMaxInflight, func(o *listener.Options) *int { return &o.MaxInflight })},
	{"gc_growth", orOff(size(listener.MinGCGrowth, listener.MaxGCGrowth, gcGrowth), gcGrowth)},
}

func whole(lo, hi int, field func(*listener.Options) *int) value {
	v := value{
		accepts: fmt.Sprintf("a whole number from %d to %d", lo, hi),
		set:     func(o *listener.Options, arg string) bool { return setWhole(field(o), arg, lo, hi) },
	}
	if lo == 0 {
		v.accepts += ", 0 for no bound"
	}
	return v
}

func setWhole(to *int, arg string, lo, hi int) bool {
	n, err := strconv.Atoi(arg)
	if err != nil || n < lo || n > hi {
		return false
	}
	*to = n
	return true
}

func gcGrowth(o *listener.Options) *int { return &o.GCGrowth }

func size(lo, hi int, field func(*listener.Options) *int) value {
	return value{
		accepts: fmt.Sprintf("a size from %s to %s, in bytes or with a unit as in 1048576, 4096KiB, 4MiB", inBytes(lo), inBytes(hi)),
		set: func(o *listener.Options, arg string) bool {
			n, err := humanize.ParseBytes(arg)
			if err != nil || n < uint64(lo) || n > uint64(hi) {
				return false
			}
			*field(o) = int(n)
			return true
		},
	}
}

// inBytes is n, a power of two, as the Corefile takes it.
func inBytes(n int) string {
	return strings.NewReplacer(".0 ", "", " ", "").Replace(humanize.IBytes(uint64(n)))
}

// orOff takes off for 0 too.
func orOff(v value, field func(*listener.Options) *int) value {
	return value{
		accepts: v.accepts + ", or off",
		set: func(o *listener.Options, arg string) bool {
			if arg == "off" {
				*field(o) = 0
				return true
			}
			return v.set(o, arg)
		},
	}
}

func steer(ways ...listener.Steer) value {
	var words []string
	for _, w := range ways {
		words = append(words, string(w))
	}
	return value{
		accepts: "one of " + strings.Join(words, ", "),
		set: func(o *listener.Options, arg string) bool {
			o.Steer = listener.Steer(arg)
			return slices.Contains(words, arg)
		},
	}
}

// parse reads the directive, and tells where it is. It goes by single tokens, because caddy's errors
// carry the line of the token read last, and because NextBlock ends alike at a closing brace, at a
// nested block and at the end of the input.
func parse(c *caddy.Controller) (at string, o listener.Options, err error) {
	o = listener.DefaultOptions()
	c.Next() // the directive's name
	at = position(c)

	more := c.NextArg()
	if more && c.Val() != "{" {
		if !sockets.set(&o, c.Val()) {
			return at, o, c.Errf("number of sockets %q is not accepted: give %s", c.Val(), sockets.accepts)
		}
		more = c.NextArg()
	}
	if more && c.Val() != "{" {
		return at, o, c.Errf("unexpected %q: %s takes at most one argument, the number of sockets", c.Val(), name)
	}
	if more {
		if err := parseBlock(c, &o); err != nil {
			return at, o, err
		}
	}

	// caddy joins all the tokens of a directive in a server block, however often it is there.
	if c.Next() {
		if c.Val() == name {
			return at, o, c.Errf("%s is given twice in one server block, first at %s", name, at)
		}
		return at, o, c.Errf("unexpected %q after the end of %s: a block opens on the directive's own line and nothing follows it", c.Val(), name)
	}
	return at, o, nil
}

func parseBlock(c *caddy.Controller, o *listener.Options) error {
	opened := position(c)
	seen := map[string]string{} // property to its position
	for c.Next() {
		if c.Val() == "}" {
			return nil
		}
		if err := parseProperty(c, o, seen); err != nil {
			return err
		}
	}
	return c.Errf("no closing brace for the block that opens at %s", opened)
}

func parseProperty(c *caddy.Controller, o *listener.Options, seen map[string]string) error {
	prop := c.Val()
	var known []string
	for _, p := range properties {
		known = append(known, p.name)
	}
	i := slices.Index(known, prop)
	if i < 0 {
		return c.Errf("unknown property %q: accepted are %s", prop, strings.Join(known, ", "))
	}
	if at, ok := seen[prop]; ok {
		return c.Errf("property %q is given twice, first at %s", prop, at)
	}
	seen[prop] = position(c)

	v := properties[i].value
	if !c.NextArg() || c.Val() == "}" {
		return c.Errf("%s needs an argument: %s", prop, v.accepts)
	}
	arg := c.Val()
	if c.NextArg() {
		return c.Errf("unexpected %q after \"%s %s\": a property takes one argument and ends its line", c.Val(), prop, arg)
	}
	if !v.set(o, arg) {
		return c.Errf("%s %q is not accepted: give %s", prop, arg, v.accepts)
	}
	return nil
}

func position(c *caddy.Controller) string { return fmt.Sprintf("%s:%d", c.File(), c.Line()) }
