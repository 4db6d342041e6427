package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// veth is a pair of network namespaces of ours and the link between them.
type veth struct{ server, client string }

const (
	vethServer = "10.89.7.1"
	vethClient = "10.89.7.2"
)

// kxdpgun sends at a rate whatever becomes of the queries, past the generator's own socket layer. It
// runs in the namespace of the client side of the veth pair.
func kxdpgun(ctx context.Context, v *veth, p place, w work, rate float64, cpu int, d time.Duration) (outcome, error) {
	file, err := xdpgunQuestions(w)
	if err != nil {
		return outcome{}, err
	}
	whole := max(1, math.Ceil(d.Seconds())) // it takes no fractions
	args := []string{"netns", "exec", v.client, "kxdpgun", "-t", fmt.Sprint(whole),
		"-Q", strconv.Itoa(int(rate)), "-b", "32", "-p", strconv.Itoa(p.port), "-F", strconv.Itoa(cpu), "-i", file, p.host}
	for try := 1; ; try++ {
		out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
		switch {
		case err != nil:
			return outcome{}, fmt.Errorf("kxdpgun: %w\n%s", err, out)
		case bytes.Contains(out, []byte("resource is busy")) && try < 10: // that of the last run goes a little later
			time.Sleep(200 * time.Millisecond)
		default:
			return parseXdpgun(out)
		}
	}
}

// answers is how many packets the server has sent so far.
func (v *veth) answers(ctx context.Context) (uint64, error) {
	out, err := exec.CommandContext(ctx, "ip", "-n", v.server, "-s", "-j", "link", "show", "dev", "v0").Output()
	if err != nil {
		return 0, err
	}
	return parseLink(out)
}

// parseLink reads what an interface has sent, with what its peer had no room for.
func parseLink(out []byte) (uint64, error) {
	var links []struct {
		Stats *struct {
			TX struct{ Packets, Dropped uint64 }
		} `json:"stats64"`
	}
	if err := json.Unmarshal(out, &links); err != nil {
		return 0, fmt.Errorf("ip: %w", err)
	}
	if len(links) != 1 || links[0].Stats == nil {
		return 0, fmt.Errorf("ip: no counters in %s", out)
	}
	return links[0].Stats.TX.Packets + links[0].Stats.TX.Dropped, nil
}

// parseXdpgun reads what kxdpgun prints at its end.
func parseXdpgun(out []byte) (outcome, error) {
	var o outcome
	f := field{out: out}
	o.Sent = uint64(f.number(`total queries: +(\d+)`))
	o.Answered = uint64(f.number(`total replies: +(\d+)`))
	o.Lost = o.Sent - min(o.Sent, o.Answered)
	o.Elapsed = seconds(f.number(`duration: +([\d.]+) s`))
	o.ResponseSize = f.number(`average DNS reply size: +(\d+) B`)
	if f.err == nil && o.Elapsed <= 0 {
		f.err = fmt.Errorf("no duration in the output:\n%s", out)
	}
	return o, f.err
}

// xdpgunQuestions is the work's file as kxdpgun reads it: it has a flag for each line where dnsperf
// has an option.
func xdpgunQuestions(w work) (string, error) {
	if !w.do {
		return w.questions, nil
	}
	data, err := os.ReadFile(w.questions)
	if err != nil {
		return "", err
	}
	file := w.questions + ".xdpgun"
	return file, os.WriteFile(file, bytes.ReplaceAll(data, []byte("\n"), []byte(" D\n")), 0o644)
}
