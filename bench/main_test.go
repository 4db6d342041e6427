package main

import (
	"testing"
	"time"
)

func TestFlags(t *testing.T) {
	o, err := parseFlags([]string{"-quick", "-only", "cpu|two", "-time", "2s"})
	if err != nil {
		t.Fatal(err)
	}
	if !o.quick || o.rounds != 1 || o.time != 2*time.Second || !o.only.MatchString("two") || o.only.MatchString("low") {
		t.Errorf("got %+v", o)
	}
	if o, err = parseFlags(nil); err != nil || o.rounds != 5 || o.time != 2*time.Second || !o.only.MatchString("low") {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	for _, bad := range [][]string{{"-only", "("}, {"-only", "nosuch"}, {"-rounds", "-1"}, {"-time", "1ms"}, {"what"}} {
		if _, err := parseFlags(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestParseBusy(t *testing.T) {
	const stat = "cpu  1 1 1 1 1 1 1 0 0 0\ncpu0 10 20 30 1000 2000 1 2 7 0 0\ncpu1 100 0 0 9 9 0 0 0 0 0\ncpu10 5 0 0 9 9 0 0 0 0 0\nintr 5\n"
	if d, err := parseBusy(stat, []int{0}); err != nil || d != 630*time.Millisecond {
		t.Errorf("got %v, %v", d, err)
	}
	if d, err := parseBusy(stat, []int{0, 1}); err != nil || d != 1630*time.Millisecond {
		t.Errorf("got %v, %v", d, err)
	}
	if _, err := parseBusy(stat, []int{3}); err == nil {
		t.Error("a CPU that is not there is accepted")
	}
}

func TestLayout(t *testing.T) {
	for _, c := range []struct{ all, one, two, load string }{
		{"0", "0", "0", "0"},
		{"0,1", "0", "0,1", "1"},
		{"2,3,6,7", "2", "2,3", "6,7"},
	} {
		all, err := splitInts(c.all)
		if err != nil {
			t.Fatal(err)
		}
		l := layout(all)
		if joinInts(l.one) != c.one || joinInts(l.two) != c.two || joinInts(l.load) != c.load {
			t.Errorf("%s: %+v", c.all, l)
		}
	}
	if _, err := splitInts("0,x"); err == nil {
		t.Error("x is accepted as a CPU")
	}
}
