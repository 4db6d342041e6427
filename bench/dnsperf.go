package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// dnsperfFlags are those with which the study's second test went well: a short time-out, and enough
// outstanding queries that a lost one does not idle the client.
var dnsperfFlags = []string{"-t", "0.5", "-q", "1000", "-b", "4096"}

var errNoDnsperf = errors.New("dnsperf is missing (on Debian: apt-get install dnsperf)")

// dnsperf asks w's questions in a closed loop for a time, or the file's once.
func dnsperf(ctx context.Context, p place, w work, clients int, d time.Duration, file string, once bool) (outcome, error) {
	args := append([]string{"-s", p.host, "-p", strconv.Itoa(p.port), "-d", file, "-c", strconv.Itoa(clients)}, dnsperfFlags...)
	if w.do {
		args = append(args, "-e", "-D")
	}
	if once {
		args = append(args, "-n", "1", "-q", "20") // none shall be lost
	}
	args = append(args, "-l", strconv.FormatFloat(d.Seconds(), 'f', 3, 64))
	out, err := exec.CommandContext(ctx, "dnsperf", args...).CombinedOutput()
	if err != nil {
		return outcome{}, fmt.Errorf("dnsperf: %w\n%s", err, out)
	}
	return parseDnsperf(out)
}

// parseDnsperf reads what dnsperf prints at its end.
func parseDnsperf(out []byte) (outcome, error) {
	var o outcome
	f := field{out: out}
	o.Sent = uint64(f.number(`Queries sent: +(\d+)`))
	o.Answered = uint64(f.number(`Queries completed: +(\d+)`))
	o.Lost = uint64(f.number(`Queries lost: +(\d+)`))
	o.Elapsed = seconds(f.number(`Run time \(s\): +([\d.]+)`))
	if f.err == nil && o.Answered > 0 {
		o.RequestSize = f.number(`Average packet size: +request (\d+)`)
		o.ResponseSize = f.number(`Average packet size: +request \d+, response (\d+)`)
		o.Latency = &latency{
			Average: seconds(f.number(`Average Latency \(s\): +([\d.]+)`)),
			Min:     seconds(f.number(`Average Latency .*min ([\d.]+)`)),
			Max:     seconds(f.number(`Average Latency .*max ([\d.]+)`)),
		}
		if o.Answered > 1 {
			o.Latency.StdDev = seconds(f.number(`Latency StdDev \(s\): +([\d.]+)`))
		}
	}
	return o, f.err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// field finds numbers in a tool's output, up to the first that is not there.
type field struct {
	out []byte
	err error
}

func (f *field) number(pattern string) float64 {
	m := regexp.MustCompile(pattern).FindSubmatch(f.out)
	if m == nil {
		if f.err == nil {
			f.err = fmt.Errorf("no %q in the output:\n%s", pattern, f.out)
		}
		return 0
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil && f.err == nil {
		f.err = err
	}
	return n
}
