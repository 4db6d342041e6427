package same

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coredns/coredns/request"

	"github.com/miekg/dns"
)

// block is the Corefile of one server block with these plugins.
func block(plugins string) string {
	return ".:PORT {\n\tbind 127.0.0.1\n\tFASTUDP\n" + plugins + "\n}\n"
}

// fill puts into a Corefile what a test has made for it.
func fill(t testing.TB, corefile string) string {
	t.Helper()
	words := map[string]func() string{
		"EXAMPLE":  func() string { return tempFile(t, "db.example.org", exampleZone) },
		"SMALL":    func() string { return tempFile(t, "db.small", smallZone) },
		"UPSTREAM": func() string { return startUpstream(t, 3600).addr },
		"DEAD":     func() string { return deadAddr(t) },
		"RESOLV":   func() string { return tempFile(t, "resolv.conf", "search one.org example.org two.org\n") },
	}
	for word, make := range words {
		if strings.Contains(corefile, word) {
			corefile = strings.ReplaceAll(corefile, word, make())
		}
	}
	return corefile
}

func withEdns(m *dns.Msg, size uint16, options ...dns.EDNS0) *dns.Msg {
	m.SetEdns0(size, true)
	m.IsEdns0().Option = options
	return m
}

// TestPlugins asks the same of both, one question after the other, and compares the answers and all
// that CoreDNS has counted.
func TestPlugins(t *testing.T) {
	t.Parallel()
	handle(t, "echo", echo)
	handle(t, "fails", func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		return dns.RcodeServerFailure, errors.New("it fails")
	})
	handle(t, "slow", func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
		<-ctx.Done()
		return dns.RcodeSuccess, w.WriteMsg(reply(r, fmt.Sprint(ctx.Err())))
	})
	var usual []*dns.Msg // to be asked where nothing else is needed
	for _, name := range []string{"www.example.org.", "alias.example.org.", "nx.example.org.", "big.example.org.", "example.org.", "host.sub.example.org."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeANY, dns.TypeNS, dns.TypeHTTPS} {
			usual = append(usual, question(name, qtype), withEdns(question(name, qtype), 4096))
		}
	}
	local := func(data string) dns.EDNS0 { return &dns.EDNS0_LOCAL{Code: 0xffee, Data: []byte(data)} }
	for _, c := range []struct {
		name     string
		corefile string
		ask      []*dns.Msg
		want     string // what one of the answers or metrics must have, so that the plugin was at work
	}{
		{"acl", block("acl example.org {\ndrop type TXT net *\nblock type A net 127.0.0.1\nfilter type ANY net *\nallow net 127.0.0.0/8\n}\nfile EXAMPLE example.org"), usual[:12], "coredns_acl_dropped_requests_total"},
		{"acl for another network", block("acl {\nblock net 192.0.2.0/24\nallow net 127.0.0.1/32\ndrop net *\n}\nwhoami"), usual[:4], "coredns_acl_allowed"},
		{"any", block("any\nfile EXAMPLE example.org"), usual, "RFC 8482"},
		{"bufsize", block("bufsize 600\nfile EXAMPLE example.org"), usual, " tc"},
		{"minimal", block("minimal\nfile EXAMPLE example.org"), usual, "AUTHORITY: 0"},
		{"nsid", block("nsid same\nfile EXAMPLE example.org"), []*dns.Msg{
			withEdns(question("www.example.org.", dns.TypeA), 1232, &dns.EDNS0_NSID{Code: dns.EDNS0NSID}), question("www.example.org.", dns.TypeA),
		}, "NSID: 73616d65"},
		{"header", block("header {\nresponse set ra\nresponse clear aa\nquery set rd\n}\nfile EXAMPLE example.org"), usual[:8], " ra"},
		{"local", block("local\nwhoami"), []*dns.Msg{question("localhost.", dns.TypeA), question("1.0.0.127.in-addr.arpa.", dns.TypePTR), question("localhost.example.org.", dns.TypeAAAA)}, "127.0.0.1"},
		{"dns64", block("dns64 {\nallow_ipv4\n}\nfile EXAMPLE example.org"), []*dns.Msg{question("mx.example.org.", dns.TypeAAAA), question("www.example.org.", dns.TypeAAAA)}, "64:ff9b::c000:219"},
		{"hosts", block("hosts {\n192.0.2.99 hosted.example.org\nfallthrough\n}\nfile EXAMPLE example.org"), append(usual[:4:4], question("hosted.example.org.", dns.TypeA), question("99.2.0.192.in-addr.arpa.", dns.TypePTR)), "192.0.2.99"},
		{"template", block("template ANY ANY {\nmatch ^(?P<host>[a-z]+)[.]\nanswer \"{{ .Name }} 60 IN TXT \\\"{{ .Group.host }} {{ .Remote }}\\\"\"\nrcode NOERROR\n}"), usual[:6], "www 127.0.0.1"},
		{"rewrite of names", block("rewrite name suffix .old.org .example.org answer auto\nrewrite name regex (.*)\\.re\\.org {1}.example.org answer auto\nfile EXAMPLE example.org"), []*dns.Msg{
			question("www.old.org.", dns.TypeA), question("alias.re.org.", dns.TypeA), question("nx.old.org.", dns.TypeA), question("www.example.org.", dns.TypeA),
		}, "www.old.org.\t3600"},
		{"rewrite of others", block("rewrite continue {\ntype HTTPS A\n}\nrewrite continue {\nttl regex .* 7\n}\nrewrite rcode regex nx\\.(.*) NXDOMAIN REFUSED\nfile EXAMPLE example.org"), usual, "\t7\t"},
		{"rewrite of options", block("rewrite edns0 local set 0xffee {client_ip}\nhandler echo"), append(usual[:2:2], withEdns(question("a.", dns.TypeTXT), 1232, local("there"))), "65518"},
		{"rewrite with the port", block("rewrite edns0 local replace 0xffee {client_port}\nhandler echo"), []*dns.Msg{question("a.", dns.TypeTXT), withEdns(question("a.", dns.TypeTXT), 1232, local("there"))}, "65518"},
		{"rewrite of the subnet", block("rewrite edns0 subnet set 24 56\nhandler echo"), usual[:2], "127.0.0.0/24"},
		{"autopath", block("autopath RESOLV\nfile EXAMPLE example.org"), []*dns.Msg{question("www.one.org.", dns.TypeA), question("nowhere.one.org.", dns.TypeA), question("www.example.org.", dns.TypeA)}, "CNAME\twww.example.org."},
		{"view", strings.ReplaceAll(`.:PORT {
	BIND
	view even {
		expr type() == 'A' && incidr(client_ip(), '127.0.0.0/8') && server_ip() == '127.0.0.1' && proto() == 'udp'
	}
	hosts {
		192.0.2.1 www.example.org
	}
}
.:PORT {
	BIND
	view large {
		expr bufsize() == 4096 && do() && opcode() == 0
	}
	metadata
	template IN ANY {
		answer "{{ .Name }} 60 IN TXT \"{{ .Meta \"view/name\" }}\""
	}
}
.:PORT {
	BIND
	view port {
		expr port() == '53'
	}
	whoami
}
.:PORT {
	BIND
	handler echo
}
`, "BIND", "bind 127.0.0.1\n\tFASTUDP\n\tprometheus"), usual[:8], "view=large"},
		{"metadata", block("metadata\nview none {\nexpr true\n}\nhandler echo"), usual[:4], "view none"},
		{"forward to the second", block("forward . DEAD UPSTREAM {\npolicy sequential\nmax_fails 0\n}"), usual[:8], "192.0.2.7"},
		{"forward to several", block("forward . UPSTREAM UPSTREAM {\npolicy round_robin\n}"), append(usual[:8:8], question("nx.", dns.TypeA), question("servfail.", dns.TypeA)), "SERVFAIL"},
		{"forward over TCP", block("forward . UPSTREAM {\nforce_tcp\n}"), usual[:8], "192.0.2.7"},
		{"forward to the dead", block("errors\nforward . DEAD {\nmax_fails 0\nmax_connect_attempts 1\n}"), usual[:2], "SERVFAIL"},
		{"forward of options", block("forward . UPSTREAM"), []*dns.Msg{withEdns(question("o.", dns.TypeTXT), 1232, local("there")), withEdns(question("p.", dns.TypeTXT), 1232, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"})}, "65518"},
		{"cache", block("cache 3600 {\nkeepttl\nsuccess 1024\ndenial 1024 60\n}\nforward . UPSTREAM"), append(append(usual[:8:8], usual[:8]...), question("nx.", dns.TypeA), question("nx.", dns.TypeA), question("servfail.", dns.TypeA), question("servfail.", dns.TypeA)), "coredns_cache_hits_total"},
		{"chaos", block("chaos version author\nwhoami"), []*dns.Msg{
			{Question: []dns.Question{{Name: "version.bind.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}}}, {Question: []dns.Question{{Name: "authors.bind.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}}},
		}, `"version"`},
		{"transfer", block("transfer {\nto *\n}\nfile EXAMPLE example.org"), []*dns.Msg{question("example.org.", dns.TypeAXFR), question("example.org.", dns.TypeIXFR), question("www.example.org.", dns.TypeA)}, "REFUSED"},
		{"cancel", block("cancel 200ms\nhandler slow"), usual[:3], "deadline exceeded"},
		{"erratic", block("erratic {\ndrop 3\ntruncate 2\ndelay 2 30ms\n}"), usual[:6], "192.0.2.53"},
		{"erratic transfer", block("erratic {\ndrop 0\ntruncate 0\ndelay 0\n}"), []*dns.Msg{question("example.org.", dns.TypeAXFR), question("example.org.", dns.TypeMX), question("a.example.org.", dns.TypeA)}, "SERVFAIL"},
		{"trace to nowhere", block("trace zipkin DEAD {\nzipkin_max_batch_interval 10ms\n}\nfile EXAMPLE example.org"), usual, "192.0.2.1"},
		{"shed", block("shed\nfile EXAMPLE example.org"), usual, "192.0.2.1"},
		{"shed and acl", block("shed\nacl {\ndrop type TXT net *\n}\nfile EXAMPLE example.org"), usual[:6], "coredns_acl_dropped_requests_total"},
		{"multisocket", block("multisocket 3\nfile EXAMPLE example.org"), usual, "192.0.2.1"},
		{"errors and a failing plugin", block("errors\nhandler fails"), usual[:3], "SERVFAIL"},
		{"no plugin for the zone", strings.ReplaceAll(block("whoami"), ".:PORT", "only.org:PORT"), append(usual[:2:2], question("only.org.", dns.TypeA)), "REFUSED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			corefile := c.corefile
			if !strings.Contains(corefile, "prometheus") {
				corefile = strings.ReplaceAll(corefile, "FASTUDP", "FASTUDP\n\tprometheus 127.0.0.1:METRICS")
			} else {
				corefile = strings.ReplaceAll(corefile, "prometheus", "prometheus 127.0.0.1:METRICS")
			}
			p := startPair(t, fill(t, corefile))
			cl := newClient(t, p)
			found := false
			for i, m := range c.ask {
				a := cl.ask(t, time.Second, pack(m.Copy()))[0] // packing changes the OPT, which others pack too
				if !equal(a) {
					t.Errorf("question %d: the answers differ\n%s\n%s", i, m, showBoth(a))
				}
				if a[0] != nil {
					found = found || strings.Contains(unpack(t, a[0]).String(), c.want)
				}
			}
			for name, value := range sameMetrics(t, p) {
				found = found || value > 0 && strings.Contains(name, c.want)
			}
			if !found {
				t.Errorf("neither an answer nor a metric with %q: the plugin has not been at work", c.want)
			}
		})
	}
}

// echo answers with what it sees of the query.
func echo(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	state := request.Request{W: w, Req: r}
	m := new(dns.Msg).SetReply(r)
	say := func(format string, args ...any) {
		m.Answer = append(m.Answer, reply(r, fmt.Sprintf(format, args...)).Answer...)
	}
	say("%T %s %s", w.RemoteAddr(), w.RemoteAddr().Network(), w.RemoteAddr())
	say("ip %s port %s proto %s family %d", state.IP(), state.Port(), state.Proto(), state.Family())
	say("%T %s", w.LocalAddr(), state.LocalIP())
	say("size %d do %v", state.Size(), state.Do())
	say("view %s tlv %s", metadataOf(ctx, "view/name"), metadataOf(ctx, "proxyproto/tlv"))
	if o := r.IsEdns0(); o != nil {
		for _, opt := range o.Option {
			say("option %d %.200s", opt.Option(), opt.String())
		}
	}
	return dns.RcodeSuccess, w.WriteMsg(m)
}

// TestMetricsOfUnusualMessages compares what is counted of messages that are no ordinary queries.
func TestMetricsOfUnusualMessages(t *testing.T) {
	t.Parallel()
	corefile := strings.ReplaceAll(richCorefile(t), "FASTUDP", "FASTUDP\n\tprometheus 127.0.0.1:METRICS")
	p := startPair(t, corefile)
	c := newClient(t, p)
	seen := make(map[string]int)
	var group [][]byte
	for _, m := range corpus(time.Now()) {
		kind := kindOf(m.name)
		if seen[kind]++; seen[kind] > 4 || m.alone || len(m.data) > stockReads {
			continue
		}
		if group = append(group, m.data); len(group) == 32 {
			c.ask(t, 100*time.Millisecond, group...)
			group = nil
		}
	}
	c.ask(t, 500*time.Millisecond, group...)
	sum := 0.0
	for _, v := range sameMetrics(t, p) {
		sum += v
	}
	if sum < 1000 {
		t.Errorf("the metrics add up to %v", sum)
	}
}

// TestLoadbalance compares the sets of records and checks that both change their order.
func TestLoadbalance(t *testing.T) {
	t.Parallel()
	p := startPair(t, fill(t, block("loadbalance\nfile EXAMPLE example.org")))
	c := newClient(t, p)
	var firsts [2]map[string]bool
	for v := range firsts {
		firsts[v] = make(map[string]bool)
	}
	for range 30 {
		a := c.ask(t, 2*time.Second, pack(withEdns(question("many.example.org.", dns.TypeA), 4096)))[0]
		if a[0] == nil || a[1] == nil {
			t.Fatalf("silence\n%s", showBoth(a))
		}
		m := [2]*dns.Msg{unpack(t, a[0]), unpack(t, a[1])}
		if d := sizeDiff(m[0], m[1]); d != "" {
			t.Error(d)
		}
		for v := range firsts {
			firsts[v][m[v].Answer[0].String()] = true
		}
	}
	for v := range firsts {
		if len(firsts[v]) < 5 {
			t.Errorf("%s: %d records have been first in 30 answers", variants[v], len(firsts[v]))
		}
	}
}

// TestMultisocket asks from many ports, so that all sockets of all servers get something.
func TestMultisocket(t *testing.T) {
	t.Parallel()
	for _, plugins := range []string{"multisocket 3", "multisocket 2\nshed", "multisocket 2\nproxyproto"} {
		t.Run(plugins, func(t *testing.T) {
			t.Parallel()
			p := startPair(t, fill(t, block(plugins+"\nprometheus 127.0.0.1:METRICS\nwhoami")))
			notify := question("a.", dns.TypeSOA)
			notify.Opcode = dns.OpcodeNotify
			for range 40 {
				a := newClient(t, p).ask(t, 2*time.Second, pack(question("a.", dns.TypeA)), pack(notify), pack(question("a.", dns.TypeA))[:15])
				for _, a := range a {
					if !equal(a) || a[0] == nil {
						t.Fatalf("the answers differ\n%s", showBoth(a))
					}
				}
			}
			sameMetrics(t, p)
			sockets := 0
			for name, n := range metrics(t, "coredns_fastudp_received_total", p[fast]) {
				if n == 0 {
					t.Errorf("%s is 0 after 40 clients", name)
				}
				sockets++
			}
			if sockets < 2 {
				t.Errorf("%d sockets", sockets)
			}
		})
	}
}

// TestErraticDelays makes sure that both delay the same answers.
func TestErraticDelays(t *testing.T) {
	t.Parallel()
	const delay = 400 * time.Millisecond
	for v := range variants {
		t.Run(variants[v], func(t *testing.T) {
			t.Parallel()
			var wrong string
			for range 3 { // a busy machine delays too
				i := startVariant(t, block("erratic {\ndrop 0\ntruncate 0\ndelay 2 400ms\n}"), v)
				conn := dialUDP(t, i.addr("127.0.0.1"))
				wrong = ""
				for n := range 6 {
					began := time.Now()
					conn.Write(pack(question("a.", dns.TypeA)))
					conn.SetReadDeadline(time.Now().Add(5 * time.Second))
					if _, err := conn.Read(make([]byte, 512)); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); (took >= delay) != (n%2 == 0) {
						wrong = fmt.Sprintf("answer %d took %v", n, took)
					}
				}
				if wrong == "" {
					return
				}
			}
			t.Error(wrong)
		})
	}
}

// TestTSIGVerifies has a client verify signed answers.
func TestTSIGVerifies(t *testing.T) {
	t.Parallel()
	p := startPair(t, richCorefile(t))
	for _, c := range []struct {
		name, key, secret, algorithm string
		age                          int64
		want                         string
	}{
		{"good", keyName, keySecret, dns.HmacSHA256, 0, "NOERROR <nil>"},
		{"sha512", keyName, keySecret, dns.HmacSHA512, 0, "NOERROR <nil>"},
		{"sha1", keyName, keySecret, dns.HmacSHA1, 0, "NOERROR <nil>"},
		{"second key", otherKey, keySecret, dns.HmacSHA256, 0, "NOERROR <nil>"},
		{"wrong secret", keyName, badSecret, dns.HmacSHA256, 0, "NOTAUTH dns: bad authentication"},
		{"unknown key", "nobody.", keySecret, dns.HmacSHA256, 0, "NOTAUTH dns: bad authentication"},
		{"old", keyName, keySecret, dns.HmacSHA256, 10000, "NOTAUTH dns: bad authentication"},
	} {
		for _, edns := range []bool{false, true} {
			for v := range variants {
				m := question("www.signed.test.", dns.TypeA)
				m.Id = dns.Id()
				if edns {
					m.SetEdns0(1232, true)
				}
				m.SetTsig(c.key, c.algorithm, 300, time.Now().Unix()-c.age)
				client := dns.Client{Timeout: 5 * time.Second, TsigSecret: map[string]string{c.key: c.secret}}
				r, _, err := client.Exchange(m, p[v].addr("127.0.0.1"))
				got := fmt.Sprint("silence ", err)
				if r != nil {
					got = fmt.Sprint(dns.RcodeToString[r.Rcode], " ", err)
				}
				if got != c.want {
					t.Errorf("%s, edns %v, %s: %s, want %s", c.name, edns, variants[v], got, c.want)
				}
			}
		}
	}
}

// TestDynupdate runs one history of updates with reads in between.
func TestDynupdate(t *testing.T) {
	t.Parallel()
	p := startPair(t, richCorefile(t))
	c := newClient(t, p)
	b := &builder{now: time.Now()}
	rr := func(s string) []dns.RR {
		r, err := dns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		return []dns.RR{r}
	}
	update := func(change func(*dns.Msg)) *dns.Msg {
		m := new(dns.Msg).SetUpdate("dyn.test.")
		m.Id = 0
		change(m)
		return m
	}
	for i, step := range []struct {
		m    *dns.Msg
		want int
	}{
		{update(func(m *dns.Msg) { m.Insert(rr(`n.dyn.test. 60 IN TXT "one"`)) }), dns.RcodeSuccess},
		{update(func(m *dns.Msg) { m.Insert(rr(`n.dyn.test. 60 IN TXT "two"`)) }), dns.RcodeSuccess},
		{update(func(m *dns.Msg) { m.Insert(rr(`n.dyn.test. 60 IN A 192.0.2.1`)) }), dns.RcodeRefused},
		{update(func(m *dns.Msg) {
			m.NameNotUsed(rr(`n.dyn.test. 60 IN TXT "one"`))
			m.Insert(rr(`n.dyn.test. 60 IN TXT "x"`))
		}), dns.RcodeYXDomain},
		{update(func(m *dns.Msg) {
			m.Used(rr(`none.dyn.test. 0 IN TXT "one"`))
			m.Insert(rr(`n.dyn.test. 60 IN TXT "x"`))
		}), dns.RcodeNXRrset},
		{update(func(m *dns.Msg) { m.Remove(rr(`n.dyn.test. 60 IN TXT "one"`)) }), dns.RcodeSuccess},
		{update(func(m *dns.Msg) { m.RemoveName(rr(`n.dyn.test. 60 IN TXT "one"`)) }), dns.RcodeSuccess},
	} {
		a := c.ask(t, 5*time.Second, b.sign(step.m))[0]
		if !equal(a) || a[0] == nil {
			t.Fatalf("step %d: the answers differ\n%s", i, showBoth(a))
		}
		if got := unpack(t, a[0]).Rcode; got != step.want {
			t.Errorf("step %d: %s, want %s", i, dns.RcodeToString[got], dns.RcodeToString[step.want])
		}
		for _, q := range []*dns.Msg{question("n.dyn.test.", dns.TypeTXT), question("dyn.test.", dns.TypeSOA)} {
			c.same(t, fmt.Sprint("after step ", i), pack(q))
		}
	}
}
