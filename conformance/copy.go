package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	coreDNS = "github.com/coredns/coredns"
	fastUDP = "github.com/fastudp/fastudp"
)

// makeCopies copies the CoreDNS that our module builds with into work, twice: stock as it is, and fast
// with our working tree as a plugin.
func makeCopies(ctx context.Context, g golang, work string) (stock, fast string, err error) {
	root, err := g.run(ctx, ".", "list", "-m", "-f", "{{.Dir}}", fastUDP)
	if err != nil {
		return "", "", fmt.Errorf("run this within the module %s: %w", fastUDP, err)
	}
	if _, err := g.run(ctx, root, "mod", "download"); err != nil {
		return "", "", err
	}
	source, err := g.run(ctx, root, "list", "-m", "-f", "{{.Dir}}", coreDNS)
	if err != nil {
		return "", "", err
	}
	stock, fast = filepath.Join(work, "stock"), filepath.Join(work, "fastudp")
	for _, dir := range []string{stock, fast} {
		// CopyFS does not keep the module cache's lack of write permission, which is what we want.
		if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
			return "", "", err
		}
	}
	return stock, fast, addPlugin(ctx, g, fast, root)
}

// addPlugin builds fastudp into the copy in dir, the way the documentation of CoreDNS tells to build
// in an external plugin.
func addPlugin(ctx context.Context, g golang, dir, root string) error {
	if err := editFile(filepath.Join(dir, "plugin.cfg"), addPluginLine); err != nil {
		return err
	}
	if _, err := g.run(ctx, dir, "mod", "edit", "-require="+fastUDP+"@v0.0.0", "-replace="+fastUDP+"="+root); err != nil {
		return err
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return err
	}
	if err := editFile(filepath.Join(dir, "go.sum"), func(text string) (string, error) {
		return text + string(sums), nil
	}); err != nil {
		return err
	}
	_, err = g.run(ctx, dir, "run", "directives_generate.go")
	return err
}

func addPluginLine(cfg string) (string, error) {
	const before = "\nmultisocket:multisocket\n"
	if !strings.Contains(cfg, before) {
		return "", errors.New("plugin.cfg has no line for multisocket")
	}
	return strings.Replace(cfg, before, before+"fastudp:"+fastUDP+"\n", 1), nil
}

func editFile(path string, edit func(string) (string, error)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	edited, err := edit(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(edited), 0o644)
}
