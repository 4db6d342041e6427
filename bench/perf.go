package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/fastudp/fastudp/internal/child"
)

// systemCalls counts the server's system calls for each answered query. perf counts them without
// stopping the server, as strace would.
func (b *bench) systemCalls(ctx context.Context, c *child.Child, p place, t trial) (float64, error) {
	if _, err := exec.LookPath("perf"); err != nil {
		return 0, errors.New("perf is missing (on Debian: apt-get install linux-perf)")
	}
	var pids []string
	for _, pid := range append([]int{c.PID()}, descendants(c.PID())...) {
		pids = append(pids, strconv.Itoa(pid))
	}
	var out bytes.Buffer
	perf := exec.CommandContext(ctx, "perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", strings.Join(pids, ","))
	perf.Stderr = &out
	if err := perf.Start(); err != nil {
		return 0, err
	}
	time.Sleep(200 * time.Millisecond) // until it counts
	o, err := t.load.ask(ctx, b, p, t.work, min(b.time, time.Second))
	perf.Process.Signal(os.Interrupt) // it writes its count and ends by the signal
	perf.Wait()
	if err != nil {
		return 0, err
	}
	calls, err := parsePerf(out.String())
	return ratio(calls, float64(o.Answered)), err
}

// parsePerf reads the count of perf stat -x,.
func parsePerf(out string) (float64, error) {
	for line := range strings.Lines(out) {
		if count, _, ok := strings.Cut(line, ",,raw_syscalls:sys_enter"); ok {
			return strconv.ParseFloat(count, 64)
		}
	}
	return 0, fmt.Errorf("no count from perf: %s", strings.TrimSpace(out))
}
