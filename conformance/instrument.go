package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What the copied files call. The names are bound in files of our own, so that the imports of the
// copied files, which CoreDNS's tests check too, stay as they are.
const (
	inputFunc   = "fastudpInput"
	loaderFunc  = "fastudpLoader"
	countFunc   = "fastudpCount"
	countedFunc = "fastudpCounted"
	mainFunc    = "fastudpMain"
)

// instrument has each Corefile that CoreDNS in root starts with go through our harness, wherever it
// does so, and the tests in dirs report what fastudp received.
func instrument(root string, dirs []string) error {
	all, err := sources(root)
	if err != nil {
		return err
	}
	// By package, not by directory: the tests in core/dnsserver that are part of that package cannot
	// import us, who import it. They start no Corefiles either.
	type pkg struct{ dir, name string }
	byPkg := map[pkg][]*source{}
	for _, s := range all {
		p := pkg{s.dir, s.pkg()}
		byPkg[p] = append(byPkg[p], s)
	}
	for p, files := range byPkg {
		if err := instrumentPackage(filepath.Join(root, p.dir), files, slices.Contains(dirs, p.dir)); err != nil {
			return fmt.Errorf("%s: %w", p.dir, err)
		}
	}
	return nil
}

func instrumentPackage(path string, files []*source, tested bool) error {
	if !slices.ContainsFunc(files, takesCorefile) {
		return nil
	}
	onlyTests, hasMain := true, false
	for _, s := range files {
		edits := append(wrapCorefiles(s), countAtStops(s)...)
		if run := testMainRun(s); run != nil && tested {
			hasMain = true
			edits = append(edits, replaceRun(s, run)...)
		}
		if len(edits) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(path, s.name), []byte(apply(s.text, edits)), 0o644); err != nil {
			return err
		}
		onlyTests = onlyTests && s.test()
	}
	for name, text := range bindings(files[0].pkg(), onlyTests, tested && !hasMain) {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// takesCorefile says whether s certainly does: a method called Restart alone may be anything.
func takesCorefile(s *source) bool {
	return slices.ContainsFunc(s.calls, func(c call) bool { return c.kind == starts || c.kind == loads })
}

// edit replaces the text between two offsets.
type edit struct {
	from, to int
	text     string
}

func apply(text string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out strings.Builder
	done := 0
	for _, e := range edits {
		out.WriteString(text[done:e.from] + e.text)
		done = e.to
	}
	out.WriteString(text[done:])
	return out.String()
}

// wrapCorefiles wraps the argument that is a Corefile, or what loads one.
func wrapCorefiles(s *source) (edits []edit) {
	for _, c := range s.calls {
		var name string
		switch c.kind {
		case starts, restarts:
			name = inputFunc
		case loads:
			name = loaderFunc
		default:
			continue
		}
		arg := c.expr.Args[len(c.expr.Args)-1]
		from, to := s.offset(arg)
		edits = append(edits, edit{from, from, name + "("}, edit{to, to, ")"})
	}
	return edits
}

// countAtStops has what fastudp received counted before a server stops, and takes its counters along.
// Whether it is a server that stops does not matter.
func countAtStops(s *source) (edits []edit) {
	for _, c := range s.calls {
		switch {
		case c.kind == stops && c.deferred: // what is deferred last runs first
			_, end := s.offset(c.expr)
			edits = append(edits, edit{end, end, "; defer " + countFunc + "()"})
		case c.kind == stops:
			from, to := s.offset(c.expr.Fun.(*ast.SelectorExpr).X)
			edits = append(edits, edit{from, from, countedFunc + "("}, edit{to, to, ")"})
		}
	}
	return edits
}

func (s *source) offset(n ast.Node) (from, to int) {
	return s.fset.Position(n.Pos()).Offset, s.fset.Position(n.End()).Offset
}

// testMainRun returns the call of m.Run if s has a TestMain.
func testMainRun(s *source) (run *ast.CallExpr) {
	if !s.test() {
		return nil
	}
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || f.Name.Name != "TestMain" {
			continue
		}
		m := f.Type.Params.List[0].Names[0].Name
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				if sel, ok := c.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Run" {
					if x, ok := sel.X.(*ast.Ident); ok && x.Name == m {
						run = c
					}
				}
			}
			return true
		})
	}
	return run
}

// replaceRun makes fastudpMain(m) of m.Run().
func replaceRun(s *source, run *ast.CallExpr) []edit {
	from, to := s.offset(run)
	m, _ := strings.CutSuffix(s.text[from:to], ".Run()")
	return []edit{{from, to, mainFunc + "(" + m + ")"}}
}
