package corefile

import (
	"os"
	"strings"
)

// expand replaces the environment variables in a key, written {$NAME} or {%NAME%}, as Caddy does: the
// transport of a block may come from one.
func expand(s string) string {
	return expandBetween(expandBetween(s, "{%", "%}"), "{$", "}")
}

func expandBetween(s, open, shut string) string {
	for {
		from := strings.Index(s, open)
		if from == -1 {
			return s
		}
		length := strings.Index(s[from:], shut)
		if length <= len(open) {
			return s // not closed, or without a name
		}
		ref := s[from : from+length+len(shut)]
		value := os.Getenv(ref[len(open) : len(ref)-len(shut)])
		if strings.Contains(value, ref) {
			return s // would never end
		}
		s = strings.ReplaceAll(s, ref, value)
	}
}
