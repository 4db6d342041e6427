// Command soak attacks an unmodified CoreDNS, with and without fastudp, for as long as it is told, and
// fails if fastudp breaks a promise. README.md says what each scenario is and promises.
//
//	go run ./soak [-run REGEXP] [-time DURATION] [-rate N] [-race] [-exe FILE] [-stock=false]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

// scenario is one kind of trouble. run is called for stock and then for fastudp.
type scenario struct {
	name   string
	about  string
	length time.Duration // unless -time says otherwise
	rate   float64       // queries a second, unless -rate says otherwise
	run    func(*trial) error
}

var scenarios = []scenario{
	{"upstream", "an upstream that never answers", time.Minute, 30000, upstream},
	{"flood", "four times the queries that can be answered, and clients that misbehave", time.Minute, 0, flood},
	{"malicious", "hostile packets beside a good client", time.Minute, 5000, malicious},
	{"reload", "reloads under load", time.Minute, 20000, reload},
	{"mixed", "all of it lightly, for long", 30 * time.Minute, 3000, mixed},
}

type config struct {
	names *regexp.Regexp
	time  time.Duration
	rate  float64
	race  bool
	exe   string
	stock bool
}

func main() {
	var c config
	run := flag.String("run", "", "run the scenarios whose name matches this `regexp`")
	flag.DurationVar(&c.time, "time", 0, "length of each scenario; 0: its own, see README.md")
	flag.Float64Var(&c.rate, "rate", 0, "queries a second; 0: the scenario's own")
	flag.BoolVar(&c.race, "race", false, "build the server with the race detector; promises about memory are not judged then")
	flag.StringVar(&c.exe, "exe", "", "use this `file` for the server instead of building cmd/coredns")
	flag.BoolVar(&c.stock, "stock", true, "show the figures of stock too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := error(nil)
	if c.names, err = regexp.Compile(*run); err == nil {
		err = soak(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func soak(ctx context.Context, c config) error {
	dir, err := os.MkdirTemp("", "fastudp-soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if c.exe == "" {
		c.exe = filepath.Join(dir, "coredns")
		if err := build(ctx, c.exe, c.race); err != nil {
			return err
		}
	}
	fmt.Printf("%s/%s, %d CPUs, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	var failed []error
	ran := 0
	for _, s := range scenarios {
		if !c.names.MatchString(s.name) {
			continue
		}
		ran++
		if c.time > 0 {
			s.length = c.time
		}
		if c.rate > 0 {
			s.rate = c.rate
		}
		if err := both(ctx, s, c, dir); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
		}
		if ctx.Err() != nil {
			failed = append(failed, context.Cause(ctx))
			break
		}
	}
	if ran == 0 {
		return fmt.Errorf("no scenario matches %q", c.names)
	}
	return errors.Join(failed...)
}

// both runs a scenario with stock and with fastudp and prints their figures side by side.
func both(ctx context.Context, s scenario, c config, dir string) error {
	fmt.Printf("\n## %s: %s\n\n", s.name, s.about)
	stock := &trial{ctx: ctx, scenario: s, exe: c.exe, race: c.race, dir: dir}
	fast := &trial{ctx: ctx, scenario: s, exe: c.exe, race: c.race, dir: dir, fast: true}
	if c.stock {
		if err := stock.do(); err != nil {
			stock.figure("could not go on", "%v", err)
		}
	}
	err := ctx.Err()
	if err == nil {
		err = fast.do()
	}
	fmt.Print(report(stock, fast))
	return errors.Join(err, fast.verdict())
}

func build(ctx context.Context, exe string, race bool) error {
	args := []string{"build", "-buildvcs=false", "-o", exe}
	if race {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "github.com/fastudp/fastudp/cmd/coredns")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
