package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// writeModule writes files, by path, to a directory that sources can read.
func writeModule(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestServerPackages(t *testing.T) {
	root := writeModule(t, map[string]string{
		"test/server.go":     "package test\n\nimport \"github.com/coredns/caddy\"\n\nfunc CoreDNSServer() { caddy.Start(nil) }\n",
		"test/a_test.go":     "package test\n\nfunc f() { CoreDNSServer() }\n",
		"start/a_test.go":    "package start\n\nimport \"github.com/coredns/caddy\"\n\nfunc f() { caddy.Start(nil) }\n",
		"alias/a_test.go":    "package alias\n\nimport c \"github.com/coredns/caddy\"\n\nfunc f() { c.Start(nil) }\n",
		"run/a_test.go":      "package run\n\nimport \"github.com/coredns/coredns/coremain\"\n\nfunc f() { coremain.Run() }\n",
		"listens/a_test.go":  "package listens\n\nimport \"github.com/coredns/coredns/core/dnsserver\"\n\nfunc f() { s := dnsserver.NewServer(); s.ServePacket(nil) }\n",
		"silent/a_test.go":   "package silent\n\nimport \"github.com/coredns/coredns/core/dnsserver\"\n\nfunc f() { dnsserver.NewServer() }\n",
		"other/a_test.go":    "package other\n\nimport \"example.org/caddy/other\"\n\nfunc f() { other.Start(nil); Start(nil) }\n",
		"mention/a_test.go":  "package mention\n\n// caddy.Start(nil)\nconst s = \"CoreDNSServer()\"\n",
		"notest/a.go":        "package notest\n\nimport \"github.com/coredns/caddy\"\n\nfunc f() { caddy.Start(nil) }\n",
		"tagged/a_test.go":   "//go:build never\n\npackage tagged\n\nfunc f() { CoreDNSServer() }\n",
		"testdata/a_test.go": "this is no Go\n",
	})
	got, err := serverPackages(root)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"alias", "listens", "run", "start", "test"}; !slices.Equal(got, want) {
		t.Errorf("packages are %q, want %q", got, want)
	}
}
