package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const startImport = "import \"github.com/coredns/caddy\"\n\n"

func TestInstrument(t *testing.T) {
	root := writeModule(t, map[string]string{
		"test/server.go": "package test\n\n" + startImport + "func start(s string) { caddy.Start(NewInput(s)) }\n",
		"test/a_test.go": "package test\n\nfunc f() {\n\tdefer i.Stop()\n\tnext, err := i.Restart(NewInput(\n\t\t\"x\",\n\t))\n\tif err := next.at(0).Stop(); err != nil {\n\t}\n\ttimer.Stop()\n}\n",
		"load/run.go":    "package load\n\n" + startImport + "func init() { caddy.RegisterCaddyfileLoader(\"flag\", caddy.LoaderFunc(l)) }\n",
		"main/a_test.go": "package main\n\n" + startImport + "func TestMain(tests *testing.M) {\n\tcaddy.Start(in)\n\tos.Exit(tests.Run())\n}\n",
		// Here the package itself must not import us.
		"core/in_test.go":  "package core\n\nfunc f() { i.Stop(); i.Restart(x) }\n",
		"core/out_test.go": "package core_test\n\n" + startImport + "func f() { caddy.Start(x) }\n",
		"reload/reload.go": "package reload\n\nfunc f() { i.Restart(x); i.Stop() }\n",
	})
	if err := instrument(root, []string{"test", "main", "core"}); err != nil {
		t.Fatal(err)
	}

	for name, want := range map[string]string{
		"test/server.go":   "package test\n\n" + startImport + "func start(s string) { caddy.Start(fastudpInput(NewInput(s))) }\n",
		"test/a_test.go":   "package test\n\nfunc f() {\n\tdefer i.Stop(); defer fastudpCount()\n\tnext, err := i.Restart(fastudpInput(NewInput(\n\t\t\"x\",\n\t)))\n\tif err := fastudpCounted(next.at(0)).Stop(); err != nil {\n\t}\n\tfastudpCounted(timer).Stop()\n}\n",
		"load/run.go":      "package load\n\n" + startImport + "func init() { caddy.RegisterCaddyfileLoader(\"flag\", fastudpLoader(caddy.LoaderFunc(l))) }\n",
		"main/a_test.go":   "package main\n\n" + startImport + "func TestMain(tests *testing.M) {\n\tcaddy.Start(fastudpInput(in))\n\tos.Exit(fastudpMain(tests))\n}\n",
		"core/in_test.go":  "package core\n\nfunc f() { i.Stop(); i.Restart(x) }\n",
		"core/out_test.go": "package core_test\n\n" + startImport + "func f() { caddy.Start(fastudpInput(x)) }\n",
		"reload/reload.go": "package reload\n\nfunc f() { i.Restart(x); i.Stop() }\n",
	} {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
		}
	}

	// The files that bind the names: in the tests alone where only they use them, and a TestMain where
	// there is none but tests are run.
	want := map[string]string{
		"test/zz_test_fastudp.go":                "package test\n",
		"test/zz_test_fastudp_main_test.go":      "package test\n",
		"load/zz_load_fastudp.go":                "package load\n",
		"main/zz_main_fastudp_test.go":           "package main\n",
		"core/zz_core_test_fastudp_test.go":      "package core_test\n",
		"core/zz_core_test_fastudp_main_test.go": "package core_test\n",
	}
	added, err := filepath.Glob(filepath.Join(root, "*", "zz_*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(added) != len(want) {
		t.Errorf("added %q, want %d files", added, len(want))
	}
	for name, start := range want {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.HasPrefix(string(text), start) {
			t.Errorf("%s starts %q, want %q", name, text, start)
		}
		if _, err := parseSource(filepath.Join(root, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestAddPluginLine(t *testing.T) {
	got, err := addPluginLine("# multisocket\ntimeouts:timeouts\nmultisocket:multisocket\nreload:reload\n")
	if want := "# multisocket\ntimeouts:timeouts\nmultisocket:multisocket\nfastudp:github.com/fastudp/fastudp\nreload:reload\n"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := addPluginLine("reload:reload\n"); err == nil {
		t.Error("no error without multisocket: the place of the directive is lost")
	}
}
