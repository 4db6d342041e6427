// Command bench measures fastudp against CoreDNS's own listener and against other name servers, and
// writes a report. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	quick  bool
	only   *regexp.Regexp
	rounds int
	time   time.Duration
	out    string
	from   string
	pgo    string
}

func main() {
	if len(os.Args) == 3 && roles[os.Args[1]] != nil {
		fail(roles[os.Args[1]](os.Args[2]))
		return
	}
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	fail(err)
	if o.from != "" {
		fail(redraw(o.from, o.out))
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	fail(run(ctx, o))
}

// roles are what the program does in a process of its own, at the address given.
var roles = map[string]func(addr string) error{"upstream": upstream, "echo": echo}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", false, "fewer loads, one short round: about 3 minutes")
	only := f.String("only", "", "run the sections whose name matches this `regexp`: "+strings.Join(sectionNames(), ", "))
	f.IntVar(&o.rounds, "rounds", 0, "do each measurement `N` times (default 5)")
	f.DurationVar(&o.time, "time", 0, "how long each measurement lasts (default 2s)")
	f.StringVar(&o.from, "from", "", "measure nothing, write the report of a `report.json` anew")
	f.StringVar(&o.pgo, "pgo", "", "measure nothing, write a profile of fastudp for the compiler to `file`")
	f.StringVar(&o.out, "o", "bench/report", "`folder` for the report")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	rounds, length := 5, 2*time.Second
	if o.quick {
		rounds, length = 1, 600*time.Millisecond
	}
	if o.rounds == 0 {
		o.rounds = rounds
	}
	if o.time == 0 {
		o.time = length
	}
	if f.NArg() > 0 || o.rounds < 1 || o.time < 100*time.Millisecond {
		return o, errors.New("want no arguments, 1 round or more and 100ms or more")
	}
	re, err := regexp.Compile(*only)
	if err != nil {
		return o, err
	}
	o.only = re
	if o.from == "" && !slices.ContainsFunc(sectionNames(), re.MatchString) {
		return o, fmt.Errorf("-only %s matches no section: there are %s", *only, strings.Join(sectionNames(), ", "))
	}
	return o, nil
}

// run builds the servers, moves to the load's CPUs, measures and reports.
func run(ctx context.Context, o options) error {
	dir, err := pinned(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := newBench(ctx, o, dir)
	if err != nil {
		return err
	}
	defer b.close()
	if o.pgo != "" {
		return b.writeProfile(ctx, o.pgo)
	}
	rep, err := b.measureAll(ctx)
	if err != nil {
		return err
	}
	return rep.write(o.out)
}
