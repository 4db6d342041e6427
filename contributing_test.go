package fastudp

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestContributing checks that the layout in CONTRIBUTING.md is that of the repository.
func TestContributing(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	var folders, patterns []string
	for row := range strings.Lines(string(text)) {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), "|")
		if first == row {
			continue
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(first, -1) {
			switch name := m[1]; {
			case strings.HasSuffix(name, "/"):
				folders = append(folders, filepath.Clean(name))
				if _, err := os.Stat(name); err != nil {
					t.Error(err)
				}
			case strings.HasSuffix(name, ".go") && name != "setup.go":
				patterns = append(patterns, name)
				if found, _ := filepath.Glob("plugin/fastudp/" + name); len(found) == 0 {
					t.Errorf("there is no plugin/fastudp/%s", name)
				}
			}
		}
	}
	files, _ := filepath.Glob("plugin/fastudp/*.go")
	for _, file := range files {
		file = filepath.Base(file)
		named := slices.ContainsFunc(patterns, func(p string) bool { ok, _ := filepath.Match(p, file); return ok })
		if !named && !strings.HasSuffix(file, "_test.go") {
			t.Errorf("CONTRIBUTING.md does not name plugin/fastudp/%s", file)
		}
	}
	code, _ := filepath.Glob("*/*.go")
	for _, parent := range []string{"internal", "plugin", "cmd"} {
		more, _ := filepath.Glob(parent + "/*/*.go")
		code = append(code, more...)
	}
	for _, file := range code {
		if dir := filepath.Dir(file); !slices.Contains(folders, dir) {
			t.Errorf("CONTRIBUTING.md does not name the folder of %s", file)
		}
	}
	if len(files) < 40 || len(code) < 40 {
		t.Errorf("only %d and %d files were seen", len(files), len(code))
	}
}
