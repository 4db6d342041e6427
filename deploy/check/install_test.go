package check

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const path = "github.com/fastudp/fastudp"

// run is the standard output of a command.
func run(t *testing.T, dir string, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, errors.String())
	}
	return strings.TrimSpace(string(out))
}

// installed checks the program that go install has put into a folder.
func installed(t *testing.T, bin string) {
	t.Helper()
	exe := filepath.Join(bin, "coredns")
	if plugins := strings.Split(run(t, bin, nil, exe, "-plugins"), "\n"); !slices.Contains(plugins, "fastudp") || !slices.Contains(plugins, "kubernetes") {
		t.Errorf("plugins: %q", plugins)
	}
	if version := run(t, bin, nil, exe, "-version"); !strings.HasPrefix(version, "CoreDNS-") {
		t.Errorf("version: %s", version)
	}
}

// TestInstall installs the program from a clone.
func TestInstall(t *testing.T) {
	bin := t.TempDir()
	run(t, "../..", []string{"GOBIN=" + bin, "GOFLAGS=-buildvcs=false", "GOWORK=off"}, "go", "install", "./cmd/coredns")
	installed(t, bin)
}

// TestInstallPublished installs the program as if this version were published: out of a module proxy in a
// folder, from outside of any module. That refuses a go.mod with replace or exclude, and files that a module
// cannot have.
func TestInstallPublished(t *testing.T) {
	dir, bin, proxy := t.TempDir(), t.TempDir(), t.TempDir()
	// Go remembers what it has read of a version, so each run has its own.
	version := module.Version{Path: path, Version: fmt.Sprintf("v0.0.0-check.%d", time.Now().Unix())}
	versions := filepath.Join(proxy, path, "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"list":                    []byte(version.Version + "\n"),
		version.Version + ".info": []byte(`{"Version":"` + version.Version + `"}`),
		version.Version + ".mod":  gomod,
	} {
		if err := os.WriteFile(filepath.Join(versions, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(versions, version.Version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := zip.CreateFromDir(f, version, "../.."); err != nil {
		t.Fatal(err)
	}

	// The other modules come from where they always do, and Go's cache keeps nothing of ours.
	cache := run(t, ".", nil, "go", "env", "GOMODCACHE")
	t.Cleanup(func() {
		source := filepath.Join(cache, version.String())
		filepath.WalkDir(source, func(name string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				os.Chmod(name, 0o755)
			}
			return nil
		})
		os.RemoveAll(source)
		there := filepath.Join(cache, "cache/download", path, "@v")
		files, _ := filepath.Glob(filepath.Join(there, version.Version+".*"))
		for _, file := range append(files, filepath.Join(there, "list")) {
			os.Remove(file)
		}
	})
	env := []string{
		"GOBIN=" + bin, "GOWORK=off", "GOFLAGS=", "GONOSUMDB=" + path,
		"GOPROXY=file://" + proxy + "," + run(t, ".", nil, "go", "env", "GOPROXY"),
	}
	run(t, dir, env, "go", "install", path+"/cmd/coredns@"+version.Version)
	installed(t, bin)
	if info := run(t, dir, nil, "go", "version", "-m", filepath.Join(bin, "coredns")); !strings.Contains(info, "mod\t"+path+"\t"+version.Version) {
		t.Errorf("built of something else: %.300s", info)
	}
}
