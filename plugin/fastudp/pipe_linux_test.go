package fastudp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"

	"golang.org/x/sys/unix"
)

// TestImportFromPipe imports what can be read only once: an error comes, not silence for ever.
func TestImportFromPipe(t *testing.T) {
	defer func(d time.Duration) { parseLimit = d }(parseLimit)
	parseLimit = 50 * time.Millisecond
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(pipe, []byte("whoami\n"), 0)
	path := filepath.Join(dir, "Corefile")
	inst, err := caddy.Start(caddy.CaddyfileInput{Filepath: path, Contents: []byte(".:0 {\nbind 127.0.0.1\nportable 1\nimport pipe\n}"), ServerTypeName: "dns"})
	if err == nil {
		inst.Stop()
		t.Fatal("started")
	}
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "pipe?") {
		t.Error(err)
	}
	os.WriteFile(pipe, nil, 0) // ends the second parsing
}
