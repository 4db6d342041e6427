package corefile

import (
	"unicode"
	"unicode/utf8"
)

// token is what Caddy's lexer makes of a word, with its place in the text.
type token struct {
	text string
	line int
	end  int // offset at which the lexer stopped: a text inserted here does not touch the token
}

const byteOrderMark = "\ufeff"

// lex splits s exactly as Caddy's lexer does, peculiarities included: whatever it takes for a word
// must be one here, or the directive would land inside something. closed is false if s ends within
// quotes, where nothing can be appended.
func lex(s string) (tokens []token, closed bool) {
	l := lexer{text: s, line: 1}
	if len(s) >= len(byteOrderMark) && s[:len(byteOrderMark)] == byteOrderMark {
		l.at = len(byteOrderMark)
	}
	for l.next() {
		tokens = append(tokens, l.token)
	}
	return tokens, !l.open
}

type lexer struct {
	text  string
	at    int
	line  int
	open  bool // the text ended within quotes
	token token
}

// next follows github.com/coredns/caddy/caddyfile step by step, so that the two are easy to compare.
func (l *lexer) next() bool {
	var val []rune
	var comment, quoted, escaped bool

	made := func() bool {
		l.token.text, l.token.end = string(val), l.at
		return true
	}

	for l.at < len(l.text) {
		ch, size := utf8.DecodeRuneInString(l.text[l.at:])

		if quoted {
			l.at += size
			if !escaped {
				if ch == '\\' {
					escaped = true
					continue
				} else if ch == '"' {
					return made()
				}
			}
			if ch == '\n' {
				l.line++
			}
			if escaped && ch != '"' {
				val = append(val, '\\') // only quotes can be escaped
			}
			val = append(val, ch)
			escaped = false
			continue
		}

		if unicode.IsSpace(ch) && ch != '\r' && len(val) > 0 {
			// The space is left to the next call: what is inserted goes in front of it. Caddy has
			// forgotten a comment by then as well, so "a#b c" is two words to it.
			return made()
		}
		l.at += size
		if unicode.IsSpace(ch) {
			if ch == '\n' {
				l.line++
				comment = false
			}
			continue
		}
		if ch == '#' {
			comment = true
		}
		if comment {
			continue
		}
		if len(val) == 0 {
			l.token = token{line: l.line}
			if ch == '"' {
				quoted = true
				continue
			}
		}
		val = append(val, ch)
	}
	l.open = l.open || quoted
	return len(val) > 0 && made()
}
