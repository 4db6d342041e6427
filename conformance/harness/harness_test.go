package harness

import (
	"errors"
	"slices"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
)

func TestInput(t *testing.T) {
	old := dnsserver.Directives
	defer func() { dnsserver.Directives = old }()
	dnsserver.Directives = []string{"bind", "whoami"}

	in := caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte("tls://. {\n}\n"), ServerTypeName: "dns"}
	if got := Input(in); string(got.Body()) != "tls://. {\n}\n" || len(dnsserver.Directives) != 2 {
		t.Errorf("changed what has no plain listener: %q, directives %q", got.Body(), dnsserver.Directives)
	}

	in.Contents = []byte(". {\n}\n")
	for range 2 {
		got := Input(in)
		if string(got.Body()) != ". {\nfastudp\n}\n" || got.Path() != "Corefile" || got.ServerType() != "dns" {
			t.Errorf("got %q, path %q, type %q", got.Body(), got.Path(), got.ServerType())
		}
		if want := []string{"fastudp", "bind", "whoami"}; !slices.Equal(dnsserver.Directives, want) {
			t.Errorf("directives are %q, want %q", dnsserver.Directives, want)
		}
	}

	in.ServerTypeName = "other"
	if got := Input(in); string(got.Body()) != ". {\n}\n" {
		t.Errorf("changed the Corefile of another server type: %q", got.Body())
	}
	if Input(nil) != nil {
		t.Error("nil, which asks for a reload of the same Corefile, did not stay nil")
	}
}

func TestDirectiveOrder(t *testing.T) {
	old := dnsserver.Directives
	defer func() { dnsserver.Directives = old }()
	dnsserver.Directives = []string{"timeouts", "multisocket", "reload"}
	allowDirective()
	if want := []string{"timeouts", "multisocket", "fastudp", "reload"}; !slices.Equal(dnsserver.Directives, want) {
		t.Errorf("directives are %q, want %q", dnsserver.Directives, want)
	}
}

func TestLoader(t *testing.T) {
	failed := errors.New("no Corefile")
	l := Loader(caddy.LoaderFunc(func(serverType string) (caddy.Input, error) {
		if serverType != "dns" {
			return nil, failed
		}
		return caddy.CaddyfileInput{Contents: []byte(". {\n}\n"), ServerTypeName: serverType}, nil
	}))
	if in, err := l.Load("dns"); err != nil || string(in.Body()) != ". {\nfastudp\n}\n" {
		t.Errorf("loaded %v, %v", in, err)
	}
	if in, err := l.Load("other"); in != nil || !errors.Is(err, failed) {
		t.Errorf("loaded %v, %v, want the error of the loader", in, err)
	}
}
