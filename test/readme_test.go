package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"
)

// TestReadmeCorefiles starts every Corefile that the documents show.
func TestReadmeCorefiles(t *testing.T) {
	defer func(p string) { dnsserver.Port = p }(dnsserver.Port)
	zone := filepath.Join(t.TempDir(), "db.example.org")
	if err := os.WriteFile(zone, []byte("example.org. 60 IN SOA ns.example.org. host.example.org. 1 2 3 4 5\nexample.org. 60 IN NS ns.example.org.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	pages, _ := filepath.Glob("../docs/*.md")
	n := 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)~~~ corefile\n(.*?)~~~").FindAllSubmatch(text, -1) {
			n++
			t.Run(fmt.Sprint(filepath.Base(page), " ", n), func(t *testing.T) {
				dnsserver.Port = fmt.Sprint(freePort(t))
				inst := start(t, strings.ReplaceAll(string(m[1]), "db.example.org", zone))
				for _, addr := range udpAddrs(inst) {
					eventually(t, addr+" is fastudp's", patience, func() bool { return len(series(t, "received_total", addr)) > 0 })
				}
			})
		}
	}
	if n < 2 {
		t.Errorf("%d Corefiles", n)
	}
}
