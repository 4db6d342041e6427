package fastudp

import (
	"runtime"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	_ "github.com/coredns/coredns/core/dnsserver" // the server type "dns"
	listener "github.com/fastudp/fastudp/plugin/fastudp"
)

func TestParse(t *testing.T) {
	type options = listener.Options
	tests := []struct {
		name, in string
		change   func(o *options) // what differs from the defaults
	}{
		{"bare", "fastudp", func(*options) {}},
		{"auto", "fastudp auto", func(*options) {}},
		{"empty block", "fastudp {\n}", func(*options) {}},
		{"empty block on one line", "fastudp { }", func(*options) {}},
		{"fewest sockets", "fastudp 1", func(o *options) { o.Sockets = 1 }},
		{"most sockets", "fastudp 1024", func(o *options) { o.Sockets = 1024 }},
		{"sockets and empty block", "fastudp 3 {\n}", func(o *options) { o.Sockets = 3 }},
		{"smallest batch", "fastudp {\nbatch 1\n}", func(o *options) { o.Batch = 1 }},
		{"largest batch", "fastudp {\nbatch 1024\n}", func(o *options) { o.Batch = 1024 }},
		{"smallest cap", "fastudp {\nfairness_cap 1\n}", func(o *options) { o.FairnessCap = 1 }},
		{"largest cap", "fastudp {\nfairness_cap 65536\n}", func(o *options) { o.FairnessCap = 65536 }},
		{"read buffer in bytes", "fastudp {\nread_buffer 1048576\n}", func(o *options) { o.ReadBuffer = 1 << 20 }},
		{"read buffer in KiB", "fastudp {\nread_buffer 512KiB\n}", func(o *options) { o.ReadBuffer = 512 << 10 }},
		{"read buffer in MiB", "fastudp {\nread_buffer 4MiB\n}", func(o *options) { o.ReadBuffer = 4 << 20 }},
		{"read buffer in MB", "fastudp {\nread_buffer 4MB\n}", func(o *options) { o.ReadBuffer = 4000000 }},
		{"read buffer with a fraction", "fastudp {\nread_buffer 1.5MiB\n}", func(o *options) { o.ReadBuffer = 3 << 19 }},
		{"read buffer quoted", "fastudp {\nread_buffer \"2 MiB\"\n}", func(o *options) { o.ReadBuffer = 2 << 20 }},
		{"smallest read buffer", "fastudp {\nread_buffer 4096\n}", func(o *options) { o.ReadBuffer = 4096 }},
		{"largest read buffer", "fastudp {\nread_buffer 512MiB\n}", func(o *options) { o.ReadBuffer = 512 << 20 }},
		{"smallest write buffer", "fastudp {\nwrite_buffer 4KiB\n}", func(o *options) { o.WriteBuffer = 4096 }},
		{"largest write buffer", "fastudp {\nwrite_buffer 536870912\n}", func(o *options) { o.WriteBuffer = 512 << 20 }},
		{"steer by hash", "fastudp {\nsteer hash\n}", func(o *options) { o.Steer = listener.SteerHash }},
		{"steer by CPU", "fastudp {\nsteer cpu\n}", func(o *options) { o.Steer = listener.SteerCPU }},
		{"steer at random", "fastudp {\nsteer random\n}", func(o *options) { o.Steer = listener.SteerRandom }},
		{"no bound", "fastudp {\nmax_inflight 0\n}", func(o *options) { o.MaxInflight = 0 }},
		{"one in flight", "fastudp {\nmax_inflight 1\n}", func(o *options) { o.MaxInflight = 1 }},
		{"most in flight", "fastudp {\nmax_inflight 1048576\n}", func(o *options) { o.MaxInflight = 1048576 }},
		{"growth off", "fastudp {\ngc_growth off\n}", func(o *options) { o.GCGrowth = 0 }},
		{"least growth", "fastudp {\ngc_growth 1MiB\n}", func(o *options) { o.GCGrowth = 1 << 20 }},
		{"most growth", "fastudp {\ngc_growth 1GiB\n}", func(o *options) { o.GCGrowth = 1 << 30 }},
		{"first property on the line of the brace", "fastudp { batch 7\n}", func(o *options) { o.Batch = 7 }},
		{
			"everything, with comments", `fastudp 8 { # eight
    max_inflight 500
    batch 32 # thirty-two

    # buffers
    read_buffer 8MiB
    write_buffer 64KiB
    steer cpu
    gc_growth 8MiB
    fairness_cap 128
}
`, func(o *options) {
				*o = options{Sockets: 8, Batch: 32, FairnessCap: 128, ReadBuffer: 8 << 20, WriteBuffer: 64 << 10,
					Steer: listener.SteerCPU, MaxInflight: 500, GCGrowth: 8 << 20}
			},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			want := options{Sockets: runtime.GOMAXPROCS(0), Batch: 192, FairnessCap: 192, Steer: listener.SteerHash, MaxInflight: 10000,
				GCGrowth: listener.DefaultOptions().GCGrowth}
			tc.change(&want)
			at, got, err := parse(caddy.NewTestController("dns", tc.in))
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if at != "Testfile:1" {
				t.Errorf("directive found at %q, want Testfile:1", at)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	const (
		sockets  = "give a whole number from 1 to 1024, or auto"
		batch    = "a whole number from 1 to 1024"
		fairness = "a whole number from 1 to 65536"
		size     = "a size from 4KiB to 512MiB, in bytes or with a unit as in 1048576, 4096KiB, 4MiB"
		steer    = "one of hash, cpu, random"
		inflight = "a whole number from 0 to 1048576, 0 for no bound"
		known    = "accepted are batch, fairness_cap, read_buffer, write_buffer, steer, max_inflight, gc_growth"
		growth   = "a size from 1MiB to 1GiB, in bytes or with a unit as in 1048576, 4096KiB, 4MiB, or off"
		huge     = "99999999999999999999"
	)
	type bad struct {
		in   string
		line string
		want []string
	}
	tests := []bad{
		{"fastudp 2 3", "1", []string{`unexpected "3"`, "at most one argument"}},
		{"fastudp auto 3 {\n}", "1", []string{`unexpected "3"`, "at most one argument"}},
		{"fastudp {batch 3}", "1", []string{`"{batch"`, sockets}},

		{"fastudp {\nbatch 3\nbatches 4\n}", "3", []string{`unknown property "batches"`, known}},
		{"fastudp {\nBATCH 3\n}", "2", []string{`unknown property "BATCH"`, known}},
		{"fastudp {\n\"\" 3\n}", "2", []string{`unknown property ""`, known}},
		{"fastudp {\nbatch 3\n\nbatch 3\n}", "4", []string{`property "batch" is given twice`, "first at Testfile:2"}},
		{"fastudp {\nsteer cpu\nbatch 3\nsteer hash\n}", "4", []string{`property "steer" is given twice`, "first at Testfile:2"}},

		{"fastudp\nfastudp", "2", []string{"fastudp is given twice", "first at Testfile:1"}},
		{"fastudp 2 {\nbatch 3\n}\nfastudp 2 {\nbatch 3\n}", "4", []string{"fastudp is given twice", "first at Testfile:1"}},

		{"fastudp {", "1", []string{"no closing brace", "opens at Testfile:1"}},
		{"fastudp {\nbatch 3\n", "2", []string{"no closing brace", "opens at Testfile:1"}},
		{"fastudp {\nbatch 3", "2", []string{"no closing brace", "opens at Testfile:1"}},
		{"fastudp {\nbatch 3 }", "2", []string{`unexpected "}" after "batch 3"`, "ends its line"}},
		{"fastudp { {\n}\n}", "1", []string{`unknown property "{"`, known}},
		{"fastudp {\n{\nbatch 3\n}\n}", "2", []string{`unknown property "{"`, known}},
		{"fastudp {\nbatch {\n}\n}", "2", []string{`batch "{"`, batch}},
		{"fastudp {\nbatch 3 {\nsteer cpu\n}\n}", "2", []string{`unexpected "{" after "batch 3"`}},
		{"fastudp\n{\nbatch 3\n}", "2", []string{`unexpected "{"`, "opens on the directive's own line"}},
		{"fastudp {\n} 3", "2", []string{`unexpected "3" after the end`}},
		{"fastudp {\n}\n}", "3", []string{`unexpected "}" after the end`}},
		{"fastudp }", "1", []string{`"}"`, sockets}},
	}
	// Each property without an argument, with two, and with each value that it must refuse.
	values := []struct {
		property, accepts string
		good              string
		bad               []string
	}{
		{"batch", batch, "3", []string{"0", "-1", "1025", huge, "-" + huge, "many", "1.5", "0x10", "64KiB", "auto"}},
		{"fairness_cap", fairness, "3", []string{"0", "-1", "65537", huge, "many", "1e3"}},
		{"read_buffer", size, "1MiB", []string{"0", "-1", "-4MiB", "4095", "536870913", "1.1GiB", "2GiB", huge, huge + "EiB", "4MiBs", "MiB", "big", "auto"}},
		{"write_buffer", size, "1MiB", []string{"0", "-1", "4095", "3KiB", "536870913", huge, "4Mib/s", "big"}},
		{"steer", steer, "cpu", []string{"Hash", "rand", "0"}},
		{"max_inflight", inflight, "3", []string{"-1", "1048577", huge, "many", "none"}},
		{"gc_growth", growth, "1MiB", []string{"0", "-1", "1023KiB", "1025MiB", huge, "Off", "auto", "no"}},
	}
	for _, v := range values {
		for _, b := range append(v.bad, `""`) {
			given := `"` + strings.Trim(b, `"`) + `"`
			tests = append(tests, bad{"fastudp {\n" + v.property + " " + b + "\n}", "2", []string{v.property + " " + given, "give " + v.accepts}})
		}
		tests = append(tests,
			bad{"fastudp {\n" + v.property + "\n}", "2", []string{v.property + " needs an argument", v.accepts}},
			bad{"fastudp { " + v.property + " }", "1", []string{v.property + " needs an argument", v.accepts}},
			bad{"fastudp {\n" + v.property + " " + v.good + " more\n}", "2", []string{`unexpected "more" after "` + v.property + " " + v.good + `"`, "takes one argument"}},
		)
	}
	for _, b := range []string{"0", "-1", "1025", huge, "-" + huge, "many", "2.5", "AUTO", "4KiB"} {
		tests = append(tests, bad{"\nfastudp " + b, "2", []string{`number of sockets "` + b + `"`, sockets}})
	}

	for _, tc := range tests {
		t.Run(tc.in, func(t *testing.T) {
			_, got, err := parse(caddy.NewTestController("dns", tc.in))
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			for _, want := range append(tc.want, "Testfile:"+tc.line+" - ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// TestParseCorefile goes through caddy's own parser, which joins repeated directives and imports.
func TestParseCorefile(t *testing.T) {
	const snippet = "(fast) {\n  fastudp 2 {\n    batch 3\n  }\n}\n"
	parseBlock := func(t *testing.T, corefile string) (string, listener.Options, error) {
		t.Helper()
		blocks, err := caddyfile.Parse("Corefile", strings.NewReader(corefile), []string{"fastudp", "whoami"})
		if err != nil {
			t.Fatal(err)
		}
		tokens := blocks[0].Tokens["fastudp"]
		return parse(&caddy.Controller{Dispenser: caddyfile.NewDispenserTokens("Corefile", tokens)})
	}

	t.Setenv("FASTUDP_TEST_BATCH", "5")
	at, got, err := parseBlock(t, ".:53 {\n  whoami\n  fastudp 2 {\n    batch {$FASTUDP_TEST_BATCH}\n  }\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got.Sockets != 2 || got.Batch != 5 || at != "Corefile:3" {
		t.Errorf("got %+v at %s, want 2 sockets and batch 5 at Corefile:3", got, at)
	}

	_, got, err = parseBlock(t, snippet+".:53 {\n  import fast\n  whoami\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got.Sockets != 2 || got.Batch != 3 {
		t.Errorf("got %+v from a snippet, want 2 sockets and batch 3", got)
	}

	_, _, err = parseBlock(t, snippet+".:53 {\n  import fast\n  whoami\n  fastudp 2\n}\n")
	if want := "Corefile:9 - Error during parsing: fastudp is given twice in one server block, first at Corefile:2"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestSetup(t *testing.T) {
	tests := []struct {
		name, in string
		keys     []string
		wants    []string // of the error; none for success
	}{
		{"good", "fastudp 2 {\nbatch 3\n}", []string{"dns://.:53"}, nil},
		{"one of two keys", "fastudp", []string{"tls://.:853", "dns://.:53"}, nil},
		{"syntax", "fastudp 2 {\nbatch 0\n}", []string{"dns://.:53"}, []string{"plugin/fastudp: ", "Testfile:2", `batch "0"`}},
		{"no plain DNS", "\nfastudp", []string{"tls://.:853", "https://.:443"}, []string{"plugin/fastudp: ", "Testfile:2", "tls://.:853", "plain DNS"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c := caddy.NewTestController("dns", tc.in)
			c.ServerBlockKeys = tc.keys
			err := setup(c)
			if len(tc.wants) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestRegistered(t *testing.T) {
	action, err := caddy.DirectiveAction("dns", name)
	if err != nil {
		t.Fatal(err)
	}
	if err := action(caddy.NewTestController("dns", "fastudp 0")); err == nil {
		t.Error("the registered setup accepts no sockets")
	}
}
