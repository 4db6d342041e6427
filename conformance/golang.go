package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// golang runs the go command.
type golang struct{ verbose bool }

// run returns what `go args...` in dir prints. An error has what it complained about.
func (g golang) run(ctx context.Context, dir string, args ...string) (string, error) {
	if g.verbose {
		fmt.Fprintf(os.Stderr, "%s: go %s\n", dir, strings.Join(args, " "))
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off") // a workspace would not have the copies in it
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(stdout.String()), nil
}
