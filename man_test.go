package fastudp

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestManPage checks that the manual page has what README.md has; ".ci/man -check" compares all of it.
func TestManPage(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, readme, found := strings.Cut(string(text), "\n## Name\n")
	if !found {
		t.Fatal("README.md has no section Name, with which a manual page begins")
	}
	readme = "## Name\n" + readme
	if text, err = os.ReadFile("man/coredns-fastudp.7"); err != nil {
		t.Fatal(err)
	}
	page := regexp.MustCompile(`\\f[A-Z]|\\&`).ReplaceAllString(string(text), "") // fonts and nothing
	page = strings.NewReplacer(`\-`, "-", `\_`, "_", `\\`, `\`).Replace(page)

	want := func(what string, least int, matches [][]string) {
		for _, m := range matches {
			if !strings.Contains(page, m[1]) {
				t.Errorf("%s %q of README.md is not in the manual page: run .ci/man", what, m[1])
			}
		}
		if len(matches) < least {
			t.Errorf("README.md has only %d of %s", len(matches), what)
		}
	}
	find := func(expression string) [][]string {
		return regexp.MustCompile(expression).FindAllStringSubmatch(readme, -1)
	}
	sections := find(`(?m)^## (.+)$`)
	for i := range sections {
		sections[i][1] = `.SH "` + strings.ToUpper(sections[i][1]) + `"`
	}
	want("section", 8, sections)
	var options [][]string
	for _, p := range properties {
		options = append(options, []string{"", p.name})
	}
	want("option", 6, options)
	want("metric", 14, find(`(coredns_fastudp_[a-z_]+[a-z])`))
	var lines [][]string
	for _, block := range find("(?s)\n(?:~~~|```)[ a-z]*\n(.*?)\n(?:~~~|```)\n") {
		for _, line := range strings.Split(block[1], "\n") {
			lines = append(lines, []string{"", line})
		}
	}
	want("line of code", 10, lines)
}
