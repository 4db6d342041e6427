package fastudp

import (
	"strings"
	"testing"

	"github.com/coredns/caddy"
)

// TestAttachRefuses tells a program that fills in Options itself what is wrong, before anything is served.
func TestAttachRefuses(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"sockets 0":            func(o *Options) { o.Sockets = 0 },
		"sockets 1025":         func(o *Options) { o.Sockets = MaxSockets + 1 },
		"batch 0":              func(o *Options) { o.Batch = 0 },
		"batch 1025":           func(o *Options) { o.Batch = MaxBatch + 1 },
		"fairness_cap 0":       func(o *Options) { o.FairnessCap = 0 },
		"fairness_cap 65537":   func(o *Options) { o.FairnessCap = MaxFairnessCap + 1 },
		"read_buffer 1":        func(o *Options) { o.ReadBuffer = 1 },
		"read_buffer -1":       func(o *Options) { o.ReadBuffer = -1 },
		"write_buffer 4095":    func(o *Options) { o.WriteBuffer = MinBuffer - 1 },
		"max_inflight -1":      func(o *Options) { o.MaxInflight = -1 },
		"max_inflight 1048577": func(o *Options) { o.MaxInflight = MaxMaxInflight + 1 },
		"gc_growth -1":         func(o *Options) { o.GCGrowth = -1 },
		"gc_growth 1048575":    func(o *Options) { o.GCGrowth = MinGCGrowth - 1 },
		"gc_growth 1073741825": func(o *Options) { o.GCGrowth = MaxGCGrowth + 1 },
		`steer ""`:             func(o *Options) { o.Steer = "" },
	} {
		o := DefaultOptions()
		change(&o)
		err := Attach(caddy.NewTestController("dns", "fastudp"), "Corefile:1", o)
		if err == nil || !strings.HasPrefix(err.Error(), "Corefile:1 - "+want+" is ") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := DefaultOptions().check(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}
