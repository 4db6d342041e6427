package corefile

import "testing"

func TestAddDirective(t *testing.T) {
	t.Setenv("CONFORMANCE_TLS", "tls://")
	t.Setenv("CONFORMANCE_PORT", "1053")

	for _, tc := range []struct{ name, in, want string }{
		{"one block", ".:0 {\n\twhoami\n}\n", ".:0 {\nfastudp\n\twhoami\n}\n"},
		{"empty text", "", ""},
		{"comment alone", "# .:0 {\n", "# .:0 {\n"},
		{"empty block", "example.org:0 {\n}", "example.org:0 {\nfastudp\n}"},
		{"byte order mark", "\ufeff.:0 {\n}", "\ufeff.:0 {\nfastudp\n}"},
		{"line ends of Windows", ".:0 {\r\n  whoami\r\n}\r\n", ".:0 {\r\nfastudp\n  whoami\r\n}\r\n"},
		{"two blocks", "a:0 {\n}\nb:0 {\n}\n", "a:0 {\nfastudp\n}\nb:0 {\nfastudp\n}\n"},

		{"directive in the line of the brace", ". { whoami\n}", ". {\nfastudp\n whoami\n}"},
		{"brace on the next line", ".:0\n{\n  whoami\n}\n", ".:0\n{\nfastudp\n  whoami\n}\n"},
		{"comment behind the brace", ". { # all\n}", ". {\nfastudp\n # all\n}"},
		{"comment that hides a brace", "a # {\n{\n}", "a # {\n{\nfastudp\n}"},
		{"comment in a word ends with it", ". {#x whoami\n}", ". {#x\nfastudp\n whoami\n}"},
		{"brace in quotes", ". {\n  log . \"}\n{\"\n}\nb {\n}", ". {\nfastudp\n  log . \"}\n{\"\n}\nb {\nfastudp\n}"},
		{"escaped quotes", ". {\n  log \"\\\"}\"\n}", ". {\nfastudp\n  log \"\\\"}\"\n}"},
		{"quotes left open", ".:0\nlog \"", ".:0\nlog \""},
		{"braces within a directive", ". {\n  view a {\n    expr 1\n  }\n}\nb {\n}",
			". {\nfastudp\n  view a {\n    expr 1\n  }\n}\nb {\nfastudp\n}"},
		{"directive with its brace on the next line", ". {\n  view a\n  {\n  }\n}", ". {\nfastudp\n  view a\n  {\n  }\n}"},
		{"template with braces in words", ". {\n template IN A {\n  answer \"{{ .Name }} 60 IN A 1.2.3.4\"\n }\n}",
			". {\nfastudp\n template IN A {\n  answer \"{{ .Name }} 60 IN A 1.2.3.4\"\n }\n}"},

		{"no braces", ".:0\nwhoami\nlog\n", ".:0\nfastudp\nwhoami\nlog\n"},
		{"no braces, keys alone", ".:0", ".:0\nfastudp\n"},
		{"no braces, keys alone and a comment", ".:0 # all", ".:0\nfastudp\n # all"},
		{"no braces, from the fuzzer", "\\\\\\\\ȶ.\nacl\n", "\\\\\\\\ȶ.\nfastudp\nacl\n"},
		{"no braces, not UTF-8", "\xf6\xe6*S65558::65535\nkubernetes i\x0cd {\tendpoint m\xff\t}\x0c",
			"\xf6\xe6*S65558::65535\nfastudp\nkubernetes i\x0cd {\tendpoint m\xff\t}\x0c"},
		{"no keys", "{\n  whoami\n}", "{\n  whoami\n}"},

		{"several keys", "a:0 b:0 {\n}", "a:0 b:0 {\nfastudp\n}"},
		{"keys with commas over lines", "a:0,\nb:0,\n  c:0 {\n}", "a:0,\nb:0,\n  c:0 {\nfastudp\n}"},
		{"comma without a key", "a:0, {\n}", "a:0, {\n}"},
		{"scheme of plain DNS", "dns://.:0 {\n}", "dns://.:0 {\nfastudp\n}"},
		{"reverse zones", "10.0.0.0/15:5053 2003::1/64 {\n}", "10.0.0.0/15:5053 2003::1/64 {\nfastudp\n}"},
		{"other transports",
			"tls://.:1 {\n}\nhttps://. {\n}\nhttps3://. {\n}\nquic://. {\n}\ngrpc://. {\n}\n",
			"tls://.:1 {\n}\nhttps://. {\n}\nhttps3://. {\n}\nquic://. {\n}\ngrpc://. {\n}\n"},
		{"only other transports", "tls://a:1, grpc://a:2,\nquic://a:3 {\n}", "tls://a:1, grpc://a:2,\nquic://a:3 {\n}"},
		{"plain among others", "tls://a:1 b:0 grpc://a:2 {\n}", "tls://a:1 b:0 grpc://a:2 {\nfastudp\n}"},
		{"plain after another block", "tls://. {\n  tls a b\n}\n.:0 {\n}", "tls://. {\n  tls a b\n}\n.:0 {\nfastudp\n}"},
		{"transport from the environment", "{$CONFORMANCE_TLS}.:0 {\n}\n{%CONFORMANCE_TLS%}.:0 {\n}",
			"{$CONFORMANCE_TLS}.:0 {\n}\n{%CONFORMANCE_TLS%}.:0 {\n}"},
		{"port from the environment", ".:{$CONFORMANCE_PORT} {\n}", ".:{$CONFORMANCE_PORT} {\nfastudp\n}"},

		{"there already", ". {\n  fastudp 2 {\n  batch 8\n }\n}", ". {\n  fastudp 2 {\n  batch 8\n }\n}"},
		{"there already, last", ". {\n  whoami\n  fastudp\n}", ". {\n  whoami\n  fastudp\n}"},
		{"a mere argument", ". {\n  log fastudp\n}", ". {\nfastudp\n  log fastudp\n}"},
		{"a mere property", ". {\n  log {\n    fastudp\n  }\n}", ". {\nfastudp\n  log {\n    fastudp\n  }\n}"},

		{"snippet", "(s) {\n  errors\n}\n. {\n  import s\n}", "(s) {\n  errors\n}\n. {\nfastudp\n  import s\n}"},
		{"snippet that has it", "(s) {\n  fastudp\n}\n. {\n  import s\n}\nb {\n}",
			"(s) {\n  fastudp\n}\n. {\n  import s\n}\nb {\nfastudp\n}"},
		{"snippet in a snippet", "(s) {\n  fastudp\n}\n(t) {\n  import s\n}\n. {\n  import t\n}",
			"(s) {\n  fastudp\n}\n(t) {\n  import s\n}\n. {\n  import t\n}"},
		{"snippets in a ring", "(s) {\n  import t\n}\n(t) {\n  import s\n}\n. {\n  import t\n}",
			"(s) {\n  import t\n}\n(t) {\n  import s\n}\n. {\nfastudp\n  import t\n}"},
		{"snippet that is half a directive", "(s) {\n  a }{ b\n}\n. {\n}", "(s) {\n  a }{ b\n}\n. {\nfastudp\n}"},
		{"import of blocks", "import sites/*\n.:0 {\n}", "import sites/*\n.:0 {\nfastudp\n}"},
		{"import of keys", "import keys\n{\n}\n.:0 {\n}", "import keys\n{\n}\n.:0 {\nfastudp\n}"},
		{"import first in a block", ". {\n  import other\n}", ". {\nfastudp\n  import other\n}"},

		{"block left open", "a {\n}\n. {\n  whoami\n", "a {\nfastudp\n}\n. {\n  whoami\n"},
		{"block left open, but a brace is last", ". {\n  view {\n  }\n", ". {\nfastudp\n  view {\n  }\n"},
		{"brace too many", ". {\n}\n}\n", ". {\nfastudp\n}\n}\nfastudp\n"},
		{"brace in the line of a directive", ". {\n  whoami }\n", ". {\n  whoami }\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := AddDirective(tc.in)
			if got != tc.want {
				t.Errorf("AddDirective(%q)\n got %q\nwant %q", tc.in, got, tc.want)
			}
			if again := AddDirective(got); again != got {
				t.Errorf("a second time changes it again:\n got %q\nwant %q", again, got)
			}
		})
	}
}
