package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed floor/echo.c
var echoSource []byte

// build makes the servers that are ours: CoreDNS with fastudp, the same with a handler that only
// echoes, and the echo in C if there is a compiler.
func build(ctx context.Context, dir string) error {
	if _, err := exec.LookPath("dnsperf"); err != nil { // before the minutes that it takes to build
		return errNoDnsperf
	}
	fmt.Println("building the servers")
	for name, pkg := range map[string]string{"coredns": "cmd/coredns", "coredns-echo": "bench/echo"} {
		if err := command(ctx, "go", "build", "-o", filepath.Join(dir, name), "github.com/fastudp/fastudp/"+pkg); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		return nil
	}
	source := filepath.Join(dir, "echo.c")
	if err := os.WriteFile(source, echoSource, 0o644); err != nil {
		return err
	}
	return command(ctx, "gcc", "-O2", "-Wall", "-o", filepath.Join(dir, "echo-c"), source)
}

// command runs a tool; its output is part of the error.
func command(ctx context.Context, argv ...string) error {
	if out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", argv, err, out)
	}
	return nil
}
