package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// binary is the tests of a package, built.
type binary struct {
	path string
	dir  string // in which to run it: that of the package
}

// pair is a test that is to be compared.
type pair struct {
	pkg, test   string
	stock, fast binary
}

// plan builds the tests of the packages in dirs and lists them.
func (r *runner) plan(ctx context.Context, g golang, stock, fast string, dirs []string) (plan []pair, err error) {
	for _, dir := range dirs {
		fmt.Fprintf(os.Stderr, "building %s\n", dir)
		var built [2]binary
		for i, root := range []string{stock, fast} {
			built[i] = binary{path: filepath.Join(root+"-tests", strings.ReplaceAll(dir, "/", "_")), dir: filepath.Join(root, dir)}
			args := []string{"test", "-c", "-o", built[i].path}
			if root == fast {
				args = append(args, "-mod=mod") // go.mod needs what fastudp requires
			}
			if _, err := g.run(ctx, root, append(args, "./"+dir)...); err != nil {
				return nil, err
			}
		}
		// The files that we add have no tests in them, so the list is the same with fastudp.
		out, err := built[0].command(ctx, "-test.list", ".").Output()
		if err != nil {
			return nil, fmt.Errorf("list the tests in %s: %w", dir, err)
		}
		for _, test := range testNames(string(out)) {
			if r.opts.tests.MatchString(test) {
				plan = append(plan, pair{dir, test, built[0], built[1]})
			}
		}
	}
	return plan, nil
}

// testNames picks what -test.run runs from the output of -test.list: tests, examples, and fuzz tests
// with their seeds, but no benchmarks.
func testNames(list string) (names []string) {
	for name := range strings.Lines(list) {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example") || strings.HasPrefix(name, "Fuzz") {
			names = append(names, name)
		}
	}
	return names
}
