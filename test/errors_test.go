package test

import "testing"

// TestStockErrorsComeFirst: what stock refuses is refused in the same words.
func TestStockErrorsComeFirst(t *testing.T) {
	for _, corefile := range []string{
		".:70000 {\n fastudp 2\n whoami\n}\n",
		"a.test:0 {\n fastudp 2\n whoami\n}\na.test:0 {\n fastudp 2\n whoami\n}\n",
		".:0 {\n bind 127.0.0.1\n fastudp 2\n whoami\n}\n.:70000 {\n fastudp 3\n whoami\n}\n",
	} {
		var said []string
		variants(t, corefile, func(t *testing.T, corefile string) { said = append(said, startErr(t, corefile)) })
		if len(said) != 2 || said[0] != said[1] || said[0] == "" {
			t.Errorf("%q: stock and fastudp say %q", corefile, said)
		}
	}
}
