package corefile

import "strings"

// block is a server block or a snippet, as far as it matters here.
type block struct {
	keys    []string
	insert  int      // offset behind the opening brace, or behind the keys if there is none
	names   []string // of the directives at its top level
	imports []string // at its top level
}

// snippet returns the name of the snippet that the block defines, if it is one.
func (b *block) snippet() (name string, ok bool) {
	if len(b.keys) != 1 {
		return "", false
	}
	name, ok = strings.CutPrefix(b.keys[0], "(")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, ")")
}

type parser struct {
	tokens []token
	at     int
}

// parseAll finds the blocks of a Corefile. It stops at the first thing that Caddy would refuse: such a
// Corefile does not start with the directive either.
func parseAll(tokens []token) []block {
	p := parser{tokens: tokens}
	var blocks []block
	for p.more() {
		if p.text() == "import" {
			p.skipLine() // brings whole blocks or keys, which are not in this text
			continue
		}
		b, ok := p.block()
		if !ok {
			break
		}
		blocks = append(blocks, b)
	}
	return blocks
}

func (p *parser) more() bool   { return p.at < len(p.tokens) }
func (p *parser) text() string { return p.tokens[p.at].text }

// newLine says whether the current token is the first of its line. A quoted token may span several.
func (p *parser) newLine() bool {
	if p.at == 0 {
		return true
	}
	before := p.tokens[p.at-1]
	return before.line+strings.Count(before.text, "\n") < p.tokens[p.at].line
}

func (p *parser) skipLine() {
	p.at++
	for p.more() && !p.newLine() {
		p.at++
	}
}

func (p *parser) block() (b block, ok bool) {
	if !p.keys(&b) {
		return b, false
	}
	if _, ok := b.snippet(); ok {
		return b, p.snippet(&b)
	}
	braces := p.more() && p.text() == "{"
	if braces {
		b.insert = p.tokens[p.at].end
		p.at++
	}
	return b, p.directives(&b, braces)
}

// snippet reads the body of a snippet. Only its braces must match: Caddy does not look into it until it
// is imported.
func (p *parser) snippet(b *block) (ok bool) {
	if !p.more() || p.text() != "{" {
		return false
	}
	p.at++
	from := p.at
	for depth := 1; p.more(); p.at++ {
		switch p.text() {
		case "{":
			depth++
		case "}":
			depth--
		}
		if depth == 0 {
			body := parser{tokens: p.tokens[from:p.at]}
			body.directives(b, false)
			p.at++
			return true
		}
	}
	return false
}

// keys reads the addresses of a block: up to a brace or, unless a comma says that there are more, up
// to the end of the line.
func (p *parser) keys(b *block) (ok bool) {
	comma := false
	for p.more() {
		key := expand(p.text())
		if key == "import" && p.newLine() {
			p.skipLine()
			b.insert = p.tokens[p.at-1].end
			return true // the rest of the keys is elsewhere
		}
		if key == "{" {
			return !comma
		}
		if key != "" {
			key, comma = strings.CutSuffix(key, ",")
			b.keys = append(b.keys, key)
		}
		b.insert = p.tokens[p.at].end
		p.at++
		if p.more() && !comma && p.newLine() {
			return true
		}
	}
	return !comma
}

// directives reads what is in a block. A block without braces ends with the text, or with a closing
// brace, as one with braces does.
func (p *parser) directives(b *block, braces bool) (ok bool) {
	for p.more() {
		switch p.text() {
		case "}":
			p.at++
			return true
		case "{":
			return false // no directive has this name, but a directive put in front would take the brace
		case "import":
			p.at++
			if !p.more() {
				return false
			}
			b.imports = append(b.imports, expand(p.text()))
			p.skipLine()
		default:
			b.names = append(b.names, expand(p.text()))
			if !p.skipDirective() {
				return false
			}
		}
	}
	// Caddy looks at the last brace alone: it may be that of a directive.
	return !braces || p.tokens[p.at-1].text == "}"
}

// skipDirective moves behind a directive: its line, and as many more as its braces span.
func (p *parser) skipDirective() (ok bool) {
	depth := 0
	for p.at++; p.more(); p.at++ {
		switch {
		case p.text() == "{":
			depth++
		case depth == 0 && p.newLine():
			return true
		case p.text() == "}":
			if depth == 0 {
				return false
			}
			depth--
		}
	}
	return depth == 0
}
