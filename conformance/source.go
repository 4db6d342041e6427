package main

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// source is a Go file of CoreDNS.
type source struct {
	dir   string // relative to the module, with slashes
	name  string
	text  string
	file  *ast.File
	fset  *token.FileSet
	calls []call
}

func (s *source) test() bool  { return strings.HasSuffix(s.name, "_test.go") }
func (s *source) pkg() string { return s.file.Name.Name }

// call is a call that has to do with servers.
type call struct {
	kind     callKind
	expr     *ast.CallExpr
	deferred bool
}

type callKind int

const (
	starts     callKind = iota + 1 // caddy.Start: takes a Corefile
	restarts                       // Instance.Restart, judging by the name: takes a Corefile
	stops                          // Instance.Stop, judging by the name
	loads                          // registers what loads a Corefile
	helps                          // calls something of CoreDNS that starts a server
	constructs                     // makes a server without a Corefile
	serves                         // has such a server serve
)

// sources parses the Go files of the module in root, apart from those that a build leaves out.
func sources(root string) (all []*source, err error) {
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(d.Name(), ".go"):
			return nil
		}
		dir := filepath.Dir(file)
		if match, err := build.Default.MatchFile(dir, d.Name()); err != nil || !match {
			return err
		}
		s, err := parseSource(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		s.dir = filepath.ToSlash(rel)
		all = append(all, s)
		return nil
	})
	return all, err
}

func parseSource(file string) (*source, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &source{name: filepath.Base(file), text: string(text), fset: token.NewFileSet()}
	s.file, err = parser.ParseFile(s.fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s.calls = findCalls(s.file)
	return s, nil
}

func findCalls(f *ast.File) (calls []call) {
	imports := importNames(f)
	var deferred *ast.CallExpr
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeferStmt:
			deferred = n.Call
		case *ast.CallExpr:
			if kind := kindOf(n, imports); kind != 0 {
				calls = append(calls, call{kind, n, n == deferred})
			}
		}
		return true
	})
	return calls
}

// importNames maps the names under which f knows other packages to their paths.
func importNames(f *ast.File) map[string]string {
	names := map[string]string{}
	for _, spec := range f.Imports {
		importPath, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(importPath)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = importPath
	}
	return names
}

func kindOf(expr *ast.CallExpr, imports map[string]string) callKind {
	var pkg, name string
	method := false
	switch fun := expr.Fun.(type) {
	case *ast.Ident:
		name = fun.Name
	case *ast.SelectorExpr:
		name = fun.Sel.Name
		if x, ok := fun.X.(*ast.Ident); ok {
			pkg = imports[x.Name]
		}
		method = pkg == ""
	}
	const caddy = "github.com/coredns/caddy"
	switch {
	case pkg == caddy && name == "Start":
		return starts
	case pkg == caddy && (name == "RegisterCaddyfileLoader" || name == "SetDefaultCaddyfileLoader"):
		return loads
	case pkg == coreDNS+"/coremain" && name == "Run", name == "CoreDNSServer", name == "CoreDNSServerAndPorts":
		return helps
	case pkg == coreDNS+"/core/dnsserver" && strings.HasPrefix(name, "NewServer"):
		return constructs
	case method && name == "Restart" && len(expr.Args) == 1:
		return restarts
	case method && name == "Stop" && len(expr.Args) == 0:
		return stops
	case method && (name == "Serve" || name == "ServePacket"):
		return serves
	}
	return 0
}
