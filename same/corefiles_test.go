package same

import (
	"fmt"
	"strings"
	"testing"
)

// exampleZone has names of each kind that an authoritative server treats differently.
var exampleZone = `$ORIGIN example.org.
$TTL 3600
@       IN SOA ns.example.org. hostmaster.example.org. 1 3600 600 86400 60
@       IN NS ns
@       IN NS ns2
@       IN MX 10 mx
ns      IN A 192.0.2.53
ns2     IN AAAA 2001:db8::53
www     IN A 192.0.2.1
www     IN AAAA 2001:db8::1
www     IN TXT "hello" "world"
www     IN HTTPS 1 . alpn=h2
alias   IN CNAME www
chain   IN CNAME alias
dname   IN DNAME wild.example.org.
*.wild  IN TXT "wild"
*.wild  IN A 192.0.2.9
a.ent   IN A 192.0.2.10
mx      IN A 192.0.2.25
_sip._tcp IN SRV 1 2 5060 www
sub     IN NS ns.sub
ns.sub  IN A 192.0.2.54
` + txts("big", 8, 180) + txts("huge", 30, 200) + addresses("many", 60)

func txts(name string, n, length int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s IN TXT \"%d %s\"\n", name, i, strings.Repeat("x", length))
	}
	return b.String()
}

func addresses(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s IN A 192.0.2.%d\n", name, i+100)
	}
	return b.String()
}

const smallZone = `@ 60 IN SOA ns hostmaster 10 60 60 60 60
@ 60 IN NS ns
@ 60 IN A 192.0.2.2
ns 60 IN A 192.0.2.53
www 60 IN A 192.0.2.1
`

// richCorefile has blocks for all zones of the corpus.
func richCorefile(t testing.TB) string {
	example := tempFile(t, "db.example.org", exampleZone)
	small := tempFile(t, "db.small", smallZone)
	up := startUpstream(t, 3600)
	const bind = "\n\tbind 127.0.0.1\n\tFASTUDP\n"
	keys := fmt.Sprintf("\tsecret %s %s\n\tsecret %s %s\n", keyName, keySecret, otherKey, keySecret)
	return strings.NewReplacer("BIND", bind, "KEYS", keys, "EXAMPLE", example, "SMALL", small, "UPSTREAM", up.addr, "DEAD", deadAddr(t)).Replace(`
.:PORT {
	BIND
	nsid same
	chaos version author
	tsig {
		KEYS
	}
	file ../zones/root-like.zone . {
		reload 0
	}
}
example.org:PORT {
	BIND
	tsig {
		KEYS
	}
	transfer {
		to *
	}
	file EXAMPLE example.org {
		reload 0
	}
}
who.test:PORT {
	BIND
	whoami
}
signed.test:PORT {
	BIND
	tsig {
		KEYS
		require all
	}
	file SMALL signed.test {
		reload 0
	}
}
dyn.test:PORT {
	BIND
	tsig {
		KEYS
		require_opcode UPDATE
	}
	transfer {
		to *
	}
	dynupdate {
		file SMALL
		allow key.example.org. * TXT ANY
	}
}
acl.test:PORT {
	BIND
	acl {
		drop type TXT net *
		block type A net 127.0.0.0/8
		filter type AAAA net *
	}
	whoami
}
any.test:PORT {
	BIND
	any
	file SMALL any.test {
		reload 0
	}
}
tmpl.test:PORT {
	BIND
	bufsize 1000
	template IN ANY {
		answer "{{ .Name }} 60 IN TXT \"id {{ .Question.Qtype }} {{ .Class }}\""
		additional "{{ .Name }} 60 IN A 192.0.2.3"
	}
}
rw.test:PORT {
	BIND
	rewrite stop {
		name regex (.*)\.rw\.test {1}.example.org answer auto
	}
	rewrite type HTTPS A
	template IN A {
		answer "{{ .Name }} 60 IN A 192.0.2.4"
	}
	template IN TXT {
		answer "{{ .Name }} 60 IN TXT renamed"
	}
}
fwd.test:PORT {
	BIND
	cache 3600 {
		keepttl
	}
	forward . UPSTREAM
}
dead.test:PORT {
	BIND
	forward . DEAD {
		max_connect_attempts 1
		next NXDOMAIN
	}
}
empty.test:PORT {
	BIND
}
`)
}

// plainCorefile has no plugin that changes what the server accepts.
func plainCorefile(t testing.TB) string {
	return strings.ReplaceAll(`
.:PORT {
	bind 127.0.0.1
	FASTUDP
	template IN ANY {
		answer "{{ .Name }} 60 IN A 192.0.2.3"
	}
}
who.test:PORT {
	bind 127.0.0.1
	whoami
}
example.org:PORT {
	bind 127.0.0.1
	file EXAMPLE {
		reload 0
	}
}
`, "EXAMPLE", tempFile(t, "db.example.org", exampleZone))
}
