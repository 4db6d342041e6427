// Package corefile puts the fastudp directive into Corefiles that do not have it, so that tests which
// know nothing of fastudp can be run with it.
package corefile

import (
	"slices"
	"strings"

	"github.com/coredns/coredns/plugin/pkg/parse"
	"github.com/coredns/coredns/plugin/pkg/transport"
)

// Directive is what AddDirective adds.
const Directive = "fastudp"

// AddDirective returns corefile with fastudp, on a line of its own, at the top of each server block
// that has at least one key of plain DNS. Blocks that have it already, by themselves or by a snippet
// they import, snippets, and blocks for other transports alone stay as they are; so do blocks that
// are in other files, imported at the top level. All other text is kept byte for byte.
func AddDirective(corefile string) string {
	tokens, closed := lex(corefile)
	if !closed {
		return corefile
	}
	blocks := parseBlocks(tokens)

	var out strings.Builder
	done := 0
	for _, b := range blocks.servers {
		if !plain(b.keys) || blocks.has(b) {
			continue
		}
		out.WriteString(corefile[done:b.insert])
		out.WriteString("\n" + Directive)
		if !strings.HasPrefix(corefile[b.insert:], "\n") {
			out.WriteString("\n")
		}
		done = b.insert
	}
	out.WriteString(corefile[done:])
	return out.String()
}

// plain says whether a block with these keys has a listener for plain DNS.
func plain(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		t, _ := parse.Transport(key)
		return t == transport.DNS
	})
}

type blocks struct {
	servers  []block
	snippets map[string]block
}

func parseBlocks(tokens []token) blocks {
	bs := blocks{snippets: map[string]block{}}
	for _, b := range parseAll(tokens) {
		if name, ok := b.snippet(); ok {
			bs.snippets[name] = b
		} else {
			bs.servers = append(bs.servers, b)
		}
	}
	return bs
}

// has says whether b has the directive, be it by snippets.
func (bs blocks) has(b block) bool {
	if slices.Contains(b.names, Directive) {
		return true
	}
	return slices.ContainsFunc(b.imports, func(name string) bool {
		s, ok := bs.snippets[name]
		if !ok {
			return false
		}
		delete(bs.snippets, name) // a snippet that imports itself must not keep us here
		defer func() { bs.snippets[name] = s }()
		return bs.has(s)
	})
}
