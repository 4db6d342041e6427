// Package check has the checks of deploy and of the Dockerfile that need modules which the plugin does not.
package check

import (
	"bytes"
	"os"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/linter"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// stages reads a Dockerfile as docker build does. Warnings are errors.
func stages(t *testing.T, text []byte) ([]instructions.Stage, error) {
	t.Helper()
	r, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	for _, w := range r.Warnings {
		t.Errorf("warning: %+v", w)
	}
	lint := linter.New(&linter.Config{Warn: func(rule, description, url, message string, location []parser.Range) {
		t.Errorf("%s: %s %v", rule, message, location)
	}})
	s, _, err := instructions.Parse(r.AST, lint)
	return s, err
}

func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{{"\nUSER ", "\nUSERS "}, {"\nENTRYPOINT [", "\nENTRYPOINT\n["}, {"--from=build", "--form=build"}} {
		bad := bytes.Replace(text, []byte(change[0]), []byte(change[1]), 1)
		if _, err := stages(t, bad); bytes.Equal(bad, text) || err == nil {
			t.Errorf("%q is accepted", change[1])
		}
	}
	s, err := stages(t, text)
	if err != nil {
		t.Fatal(err)
	}
	if len(s) != 2 || s[0].Name != "build" {
		t.Fatalf("stages: %v", s)
	}
	var user, entrypoint string
	for _, c := range s[1].Commands {
		switch c := c.(type) {
		case *instructions.CopyCommand:
			if c.From != "build" {
				t.Errorf("copies from %q", c.From)
			}
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			if c.PrependShell {
				t.Error("the entrypoint needs a shell, which the image has not")
			}
			entrypoint = c.CmdLine[0]
		}
	}
	if user != "65532:65532" || entrypoint != "/coredns" {
		t.Errorf("runs %q as %q", entrypoint, user)
	}
}
