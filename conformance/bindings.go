package main

import "fmt"

// bindings returns the files, by name, that bind our names in a package. testMain adds a TestMain.
func bindings(pkg string, onlyTests, testMain bool) map[string]string {
	name := "zz_" + pkg + "_fastudp"
	if onlyTests {
		name += "_test"
	}
	files := map[string]string{
		name + ".go": fmt.Sprintf(bindingText, pkg, fastUDP, inputFunc, loaderFunc, countFunc, mainFunc, countedFunc),
	}
	if testMain {
		files["zz_"+pkg+"_fastudp_main_test.go"] = fmt.Sprintf(testMainText, pkg, mainFunc)
	}
	return files
}

const bindingText = `package %s

import "%s/conformance/harness"

var (
	%s  = harness.Input
	%s = harness.Loader
	%s  = harness.Count
	%s   = harness.Main
)

func %s[T any](x T) T { return harness.Counted(x) }
`

const testMainText = `package %s

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(%s(m)) }
`
