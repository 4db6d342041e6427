package test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"

	"github.com/miekg/dns"
)

// TestListeners asks every listener of a Corefile over UDP and TCP, with stock and with fastudp, and
// looks which of the UDP listeners are fastudp's. P is a free port, Q another.
func TestListeners(t *testing.T) {
	for _, c := range []struct {
		name, corefile string
		ours, stocks   []string // UDP addresses
		sockets        int      // of each of ours; 0 is not looked at
		ask, refused   []string // names, example. if there is none
	}{
		{name: "several keys and ports", sockets: 2,
			corefile: "example.:P test.:Q dns://sub.example.:Q {\n bind 127.0.0.1\n fastudp 2\n sleep\n}",
			ours:     []string{"127.0.0.1:P", "127.0.0.1:Q"}},
		{name: "several addresses", sockets: 1,
			corefile: ".:P {\n bind 127.0.0.1 127.0.0.2 ::1\n fastudp 1\n sleep\n}",
			ours:     []string{"127.0.0.1:P", "127.0.0.2:P", "[::1]:P"}},
		{name: "an interface", sockets: 2,
			corefile: ".:P {\n bind lo\n fastudp 2\n sleep\n}",
			ours:     []string{"127.0.0.1:P", "[::1]:P"}},
		{name: "an interface except one address", sockets: 2,
			corefile: ".:P {\n bind lo {\n  except ::1\n }\n fastudp 2\n sleep\n}",
			ours:     []string{"127.0.0.1:P"}},
		{name: "a wildcard", sockets: 3,
			corefile: ".:P {\n fastudp 3\n sleep\n}",
			ours:     []string{"[::]:P"}},
		{name: "an IPv4 wildcard", sockets: 3,
			corefile: ".:P {\n bind 0.0.0.0\n fastudp 3\n sleep\n}",
			ours:     []string{"[::]:P"}}, // Go's package net makes it one of both families
		{name: "an IPv6 wildcard", sockets: 2,
			corefile: ".:P {\n bind ::\n fastudp 2\n sleep\n}",
			ours:     []string{"[::]:P"}},
		{name: "port 0", sockets: 3,
			corefile: ".:0 {\n bind 127.0.0.1\n fastudp 3\n sleep\n}",
			ours:     []string{"127.0.0.1:0"}},
		{name: "a block with and one without on one listener", sockets: 2,
			corefile: "example.:P {\n bind 127.0.0.1\n fastudp 2\n sleep\n}\ntest.:P {\n bind 127.0.0.1\n sleep\n}",
			ours:     []string{"127.0.0.1:P"}, ask: []string{"a.example.", "a.test."}},
		{name: "the block with the directive last", sockets: 2,
			corefile: "example.:P {\n bind 127.0.0.1\n sleep\n}\ntest.:P {\n bind 127.0.0.1\n fastudp 2\n sleep\n}",
			ours:     []string{"127.0.0.1:P"}, ask: []string{"a.example.", "a.test."}},
		{name: "equal options in both", sockets: 2,
			corefile: "example.:P {\n bind 127.0.0.1\n fastudp 2 {\n batch 8\n steer hash\n}\n sleep\n}\ntest.:P {\n bind 127.0.0.1\n fastudp 2 {\n batch 8\n}\n sleep\n}",
			ours:     []string{"127.0.0.1:P"}, ask: []string{"a.example.", "a.test."}},
		{name: "different options on different listeners",
			corefile: "example.:P {\n bind 127.0.0.1\n fastudp 2\n sleep\n}\nexample.:P {\n bind 127.0.0.2\n fastudp 3\n sleep\n}",
			ours:     []string{"127.0.0.1:P", "127.0.0.2:P"}},
		{name: "a block that stays stock", sockets: 2,
			corefile: "example.:P {\n bind 127.0.0.1\n fastudp 2\n sleep\n}\nexample.:Q {\n bind 127.0.0.1\n sleep\n}",
			ours:     []string{"127.0.0.1:P"}, stocks: []string{"127.0.0.1:Q"}},
		{name: "multisocket with more sockets", sockets: 5,
			corefile: ".:P {\n bind 127.0.0.1\n multisocket 3\n fastudp 5\n sleep\n}",
			ours:     []string{"127.0.0.1:P"}},
		{name: "multisocket with fewer sockets", sockets: 3,
			corefile: ".:P {\n bind 127.0.0.1\n multisocket 3\n fastudp 1\n sleep\n}",
			ours:     []string{"127.0.0.1:P"}},
		{name: "a reverse network beside others", sockets: 1,
			corefile: "example.:P 10.0.0.0/15 tls://test.:R 192.0.2.0/24:Q {\n bind 127.0.0.1\n tls CERT KEY\n fastudp 1\n sleep\n}",
			ours:     []string{"127.0.0.1:P", "127.0.0.1:Q"}, ask: []string{"a.example.", "1.0.0.10.in-addr.arpa.", "1.0.1.10.in-addr.arpa."}},
		{name: "snippets", sockets: 2,
			corefile: "(common) {\n bind 127.0.0.1\n fastudp 2\n}\nexample.:P {\n import common\n sleep\n}\nexample.:Q {\n import common\n sleep\n}",
			ours:     []string{"127.0.0.1:P", "127.0.0.1:Q"}},
		{name: "an imported file", sockets: 2,
			corefile: "import DIR/imported\ntest.:P {\n bind 127.0.0.1\n sleep\n}",
			ours:     []string{"127.0.0.1:P"}, ask: []string{"a.example.", "a.test."}},
		{name: "views", sockets: 2,
			corefile: "example.:P {\n bind 127.0.0.1\n view a {\n expr name() == 'a.example.'\n}\n fastudp 2\n sleep\n}\nexample.:P {\n bind 127.0.0.1\n template IN A {\n rcode NXDOMAIN\n}\n}",
			ours:     []string{"127.0.0.1:P"}, ask: []string{"a.example.", "b.example."}},
		{name: "environment variables", sockets: 2,
			corefile: "example.:{$FASTUDP_TEST_PORT} {\n bind 127.0.0.1\n fastudp 2\n sleep\n}",
			ours:     []string{"127.0.0.1:P"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, q := freePort(t), freePort(t)
			dir := t.TempDir()
			cert, key, _ := selfSigned(t, dir)
			t.Setenv("FASTUDP_TEST_PORT", fmt.Sprint(p))
			replace := strings.NewReplacer(":P", fmt.Sprint(":", p), ":Q", fmt.Sprint(":", q), ":R", fmt.Sprint(":", freePort(t)), "10.0.0.0/15", fmt.Sprint("10.0.0.0/15:", p),
				"DIR", dir, "CERT", cert, "KEY", key)
			corefile := replace.Replace(c.corefile)
			imported := fmt.Sprintf("example.:%d {\n bind 127.0.0.1\n fastudp 2\n sleep\n}\n", p)
			if c.ask == nil {
				c.ask = []string{"a.example."}
			}
			var answers [2][]string
			for i, variant := range []struct{ corefile, imported string }{{stock(corefile), stock(imported)}, {corefile, imported}} {
				if err := os.WriteFile(filepath.Join(dir, "imported"), []byte(variant.imported), 0o600); err != nil {
					t.Fatal(err)
				}
				inst := start(t, variant.corefile)
				for _, s := range append(slices.Clone(c.ours), c.stocks...) {
					addr := replace.Replace(s)
					if strings.HasSuffix(addr, ":0") {
						addr = udpAddrs(inst)[0]
					}
					if !slices.Contains(udpAddrs(inst), addr) {
						t.Errorf("no UDP listener %s in %q", addr, udpAddrs(inst))
						continue
					}
					for _, name := range c.ask {
						for _, network := range []string{"udp", "tcp"} {
							to := addr
							if network == "tcp" {
								to = tcpOf(inst, addr)
							}
							m := ask(t, network, to, name)
							answers[i] = append(answers[i], fmt.Sprint(network, s, name, dns.RcodeToString[m.Rcode], m.Answer))
						}
					}
					sockets := series(t, "received_total", addr)
					if ours := i == 1 && slices.Contains(c.ours, s); ours != (len(sockets) > 0) {
						t.Errorf("variant %d: fastudp has %d sockets on %s", i, len(sockets), addr)
					} else if ours && c.sockets != 0 && len(sockets) != c.sockets {
						t.Errorf("fastudp has %d sockets on %s, expected %d", len(sockets), addr, c.sockets)
					} else if ours && total(sockets) == 0 {
						t.Errorf("the sockets on %s received nothing", addr)
					}
				}
				stop(inst)
			}
			if !slices.Equal(answers[0], answers[1]) {
				t.Errorf("stock answers\n%s\nfastudp answers\n%s", strings.Join(answers[0], "\n"), strings.Join(answers[1], "\n"))
			}
		})
	}
}

// TestListenersOnBothFamilies: a wildcard bind is one socket of both families, as with stock.
func TestListenersOnBothFamilies(t *testing.T) {
	variants(t, ".:0 {\n\tfastudp 2\n\tsleep\n}\n", func(t *testing.T, corefile string) {
		inst := start(t, corefile)
		addr := udpAddrs(inst)[0]
		for network, bound := range map[string]string{"udp": addr, "tcp": tcpOf(inst, addr)} {
			_, port, _ := net.SplitHostPort(bound)
			for _, host := range []string{"127.0.0.1", "127.0.0.5", "::1"} {
				ask(t, network, net.JoinHostPort(host, port), "a.example.")
			}
		}
	})
}

// TestListenersRefused: what cannot be had is an error that says where, before anything listens.
func TestListenersRefused(t *testing.T) {
	for _, c := range []struct {
		name, corefile string
		want           []string
	}{
		{"different options on one listener",
			"example.:P {\n bind 127.0.0.1\n fastudp 2\n sleep\n}\ntest.:P {\n bind 127.0.0.1\n sleep\n fastudp 3\n}",
			[]string{"Corefile:3", "Corefile:9", "dns://127.0.0.1:P"}},
		{"different options on one of several listeners",
			"example.:P {\n bind 127.0.0.1 127.0.0.2\n fastudp 2\n sleep\n}\ntest.:P {\n bind 127.0.0.2 127.0.0.3\n fastudp 2 {\n batch 1\n}\n sleep\n}",
			[]string{"Corefile:3", "Corefile:8", "dns://127.0.0.2:P"}},
		{"no plain DNS", "tls://example.:P {\n sleep\n fastudp\n}", []string{"Corefile:3", "plain DNS"}},
		{"no plain DNS among several", "tls://example.:P https://example.:Q grpc://example. quic://example. {\n fastudp\n sleep\n}", []string{"Corefile:2", "plain DNS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := freePort(t)
			replace := strings.NewReplacer(":P", fmt.Sprint(":", p), ":Q", fmt.Sprint(":", freePort(t)))
			got := startErr(t, replace.Replace(c.corefile))
			for _, w := range c.want {
				if w = replace.Replace(w); !strings.Contains(got, w) {
					t.Errorf("the error does not say %q: %s", w, got)
				}
			}
			l, err := net.ListenPacket("udp", fmt.Sprint("127.0.0.1:", p))
			if err != nil {
				t.Fatalf("something listens: %v", err)
			}
			l.Close()
		})
	}
}

// TestListenersOtherTransports: what is no plain DNS stays as it was.
func TestListenersOtherTransports(t *testing.T) {
	cert, key, pool := selfSigned(t, t.TempDir())
	p, q, r := freePort(t), freePort(t), freePort(t)
	corefile := fmt.Sprintf("dns://example.:%d tls://example.:%d https://example.:%d quic://example.:%d {\n bind 127.0.0.1\n tls %s %s\n fastudp 2\n sleep\n}",
		p, q, r, r, cert, key)
	variants(t, corefile, func(t *testing.T, corefile string) {
		start(t, corefile)
		plain := fmt.Sprint("127.0.0.1:", p)
		ask(t, "udp", plain, "a.example.")
		ask(t, "tcp", plain, "a.example.")

		config := &tls.Config{RootCAs: pool, ServerName: "example"}
		c := dns.Client{Net: "tcp-tls", TLSConfig: config, Timeout: patience}
		m, _, err := c.Exchange(new(dns.Msg).SetQuestion("a.example.", dns.TypeA), fmt.Sprint("127.0.0.1:", q))
		if err != nil || len(m.Answer) != 1 {
			t.Errorf("tls: %v %v", m, err)
		}

		h := http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
		defer h.CloseIdleConnections()
		resp, err := h.Get(fmt.Sprintf("https://127.0.0.1:%d/dns-query?dns=%s", r, base64.RawURLEncoding.EncodeToString(query("a.example.", dns.TypeA))))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		m = new(dns.Msg)
		if err != nil || m.Unpack(body) != nil || len(m.Answer) != 1 {
			t.Errorf("https: %d %q %v", resp.StatusCode, body, err)
		}
		if got := total(series(t, "received_total", fmt.Sprint("127.0.0.1:", r))); got != 0 {
			t.Errorf("fastudp received %v datagrams of the QUIC listener", got)
		}
	})
}

// tcpOf is the TCP address of the server that listens on a UDP address; they differ for port 0.
func tcpOf(inst *caddy.Instance, udp string) string {
	for _, s := range inst.Servers() {
		if s.LocalAddr() != nil && s.LocalAddr().String() == udp {
			return s.Addr().String()
		}
	}
	return ""
}

// selfSigned makes a certificate for "example" and 127.0.0.1.
func selfSigned(t *testing.T, dir string) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(cert, certPEM, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600); err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return cert, key, pool
}
