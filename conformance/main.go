// Command conformance runs CoreDNS's own tests twice, as they are and with fastudp in every block
// that has a plain DNS listener, and says which tests pass only without it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

type options struct {
	tests    *regexp.Regexp
	packages *regexp.Regexp
	timeout  time.Duration
	tries    int
	keep     bool
	verbose  bool
}

func main() {
	opts, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	rep, err := conform(ctx, opts)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	if err := rep.write(os.Stdout); err != nil || !rep.ok() {
		os.Exit(1)
	}
}

func parseFlags(args []string) (opts options, err error) {
	fs := flag.NewFlagSet("conformance", flag.ContinueOnError)
	tests := fs.String("run", "", "run the tests whose name matches this regular `expression`")
	packages := fs.String("pkg", "", "run the packages whose directory in CoreDNS matches this regular `expression`, for example ^test$")
	fs.DurationVar(&opts.timeout, "timeout", time.Minute, "`time` for each try of a test")
	fs.IntVar(&opts.tries, "tries", 3, "how often to try a test that fails, at most")
	fs.BoolVar(&opts.keep, "keep", false, "keep the temporary folder: both copies, their test binaries, the output of each try")
	fs.BoolVar(&opts.verbose, "v", false, "print what is run, and the output of each try that fails")
	if err := fs.Parse(args); err != nil {
		return opts, err
	}
	if fs.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if opts.tries < 1 {
		return opts, fmt.Errorf("-tries must be at least 1, not %d", opts.tries)
	}
	if opts.tests, err = regexp.Compile(*tests); err != nil {
		return opts, fmt.Errorf("-run: %w", err)
	}
	if opts.packages, err = regexp.Compile(*packages); err != nil {
		return opts, fmt.Errorf("-pkg: %w", err)
	}
	return opts, nil
}

func conform(ctx context.Context, opts options) (*report, error) {
	work, err := os.MkdirTemp("", "fastudp-conformance-")
	if err != nil {
		return nil, err
	}
	if opts.keep {
		fmt.Fprintln(os.Stderr, "everything is in", work)
	} else {
		defer os.RemoveAll(work)
	}

	g := golang{verbose: opts.verbose}
	stock, fast, err := makeCopies(ctx, g, work)
	if err != nil {
		return nil, err
	}
	dirs, err := serverPackages(stock)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "packages whose tests start a CoreDNS server (there is nothing to compare in the others):")
	var chosen []string
	for _, dir := range dirs {
		note := ""
		if opts.packages.MatchString(dir) {
			chosen = append(chosen, dir)
		} else {
			note = "  (left out by -pkg)"
		}
		fmt.Fprintf(os.Stderr, "  %s%s\n", dir, note)
	}
	if err := instrument(fast, dirs); err != nil {
		return nil, err
	}

	r := runner{opts: opts, output: filepath.Join(work, "output"), counts: filepath.Join(work, "counts")}
	plan, err := r.plan(ctx, g, stock, fast, chosen)
	if err != nil {
		return nil, err
	}
	if len(plan) == 0 {
		return nil, errors.New("no test matches")
	}
	differ, err := differentModules(plan[0].stock.path, plan[0].fast.path)
	if err != nil {
		return nil, err
	}
	results, err := r.run(ctx, plan)
	return &report{results: results, differ: differ}, err
}
