package corefile

import (
	"go/ast"
	goparser "go/parser"
	gotoken "go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coredns/caddy/caddyfile"
)

// TestAgainstCaddy takes every Corefile that CoreDNS's own tests and READMEs hold and has Caddy's
// parser say what the rewriting changed.
func TestAgainstCaddy(t *testing.T) {
	corefiles := coreDNSCorefiles(t)
	if len(corefiles) < 200 {
		t.Fatalf("found only %d Corefiles in CoreDNS", len(corefiles))
	}
	for _, c := range corefiles {
		checkAgainstCaddy(t, c)
	}
}

// TestOddAgainstCaddy does the same with what no operator writes.
func TestOddAgainstCaddy(t *testing.T) {
	for _, s := range []string{
		".:0 {\n\twhoami\n}\n", "a,\nb\nlog \"x\ny\"\n", "(s) {\n}\ntls://. {#x y\n}", "{$A}\n{ \"\" }\n}\n", "\\\\ȶ.\nacl",
	} {
		checkAgainstCaddy(t, s)
	}
}

func checkAgainstCaddy(t *testing.T, before string) {
	t.Helper()
	after := AddDirective(before)
	if _, closed := lex(before); !closed {
		if after != before {
			t.Fatalf("%q, which ends in quotes, changed to %q", before, after)
		}
		return
	}
	was, errBefore := caddyfile.Parse("Corefile", strings.NewReader(before), nil)
	is, errAfter := caddyfile.Parse("Corefile", strings.NewReader(after), nil)
	if (errBefore == nil) != (errAfter == nil) {
		t.Fatalf("errors differ for %q: %v, then %v", before, errBefore, errAfter)
	}
	if errBefore != nil || slices.ContainsFunc(was, refusedLater) {
		return
	}
	if len(is) != len(was) {
		t.Fatalf("%d blocks in %q, then %d in %q", len(was), before, len(is), after)
	}
	for i := range is {
		if !slices.Equal(was[i].Keys, is[i].Keys) {
			t.Errorf("keys of a block changed from %q to %q in %q", was[i].Keys, is[i].Keys, after)
		}
		_, had := was[i].Tokens[Directive]
		_, has := is[i].Tokens[Directive]
		if want := had || plain(was[i].Keys); has != want {
			t.Errorf("block %q has the directive: %t, want %t, in %q", is[i].Keys, has, want, after)
		}
		if !had {
			delete(is[i].Tokens, Directive)
		}
		if b, a := texts(was[i]), texts(is[i]); !reflect.DeepEqual(b, a) {
			t.Errorf("directives of block %q changed from %q to %q", is[i].Keys, b, a)
		}
	}
}

// refusedLater says whether a block passes the parser but has a directive that is a brace, or a key
// that is the name of a snippet.
func refusedLater(b caddyfile.ServerBlock) bool {
	_, snippet := (&block{keys: b.Keys}).snippet()
	return b.Tokens["{"] != nil || snippet
}

func texts(b caddyfile.ServerBlock) map[string][]string {
	m := map[string][]string{}
	for name, tokens := range b.Tokens {
		for _, tok := range tokens {
			m[name] = append(m[name], tok.Text)
		}
	}
	return m
}

var readmeCorefile = regexp.MustCompile("(?ms)^(?:~~~|```) *corefile\n(.*?)^(?:~~~|```)$")

// coreDNSCorefiles collects the Corefiles of the READMEs and, from test/, each string that spans
// lines and has a brace: all Corefiles are among them, and what is none must not do harm either.
func coreDNSCorefiles(t *testing.T) (corefiles []string) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/coredns/coredns").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case d.Name() == "README.md":
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range readmeCorefile.FindAllStringSubmatch(string(text), -1) {
				corefiles = append(corefiles, m[1])
			}
		case filepath.Base(filepath.Dir(path)) == "test" && strings.HasSuffix(path, "_test.go"):
			f, err := goparser.ParseFile(gotoken.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == gotoken.STRING {
					if s, err := strconv.Unquote(lit.Value); err == nil && strings.Contains(s, "\n") && strings.Contains(s, "{") {
						corefiles = append(corefiles, s)
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return corefiles
}
