package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	dirEnv  = "FASTUDP_BENCH_DIR"  // where the servers have been built
	cpusEnv = "FASTUDP_BENCH_CPUS" // on which CPUs we could run before
)

// parseBusy reads /proc/stat, whose lines have ticks of 10 ms: user, nice, system, idle, iowait, irq,
// softirq and more.
func parseBusy(stat string, cpus []int) (time.Duration, error) {
	ticks, found := 0, 0
	for line := range strings.Lines(stat) {
		f := strings.Fields(line)
		if len(f) < 8 || !slices.ContainsFunc(cpus, func(n int) bool { return f[0] == fmt.Sprintf("cpu%d", n) }) {
			continue
		}
		found++
		for _, i := range []int{1, 2, 3, 6, 7} {
			n, err := strconv.Atoi(f[i])
			if err != nil {
				return 0, fmt.Errorf("/proc/stat: %w", err)
			}
			ticks += n
		}
	}
	if found != len(cpus) {
		return 0, fmt.Errorf("/proc/stat has %d of the CPUs %v", found, cpus)
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

func joinInts(list []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list)), ","), "[]")
}

func splitInts(s string) (list []int, err error) {
	for _, f := range strings.Split(s, ",") {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// cpus says who runs where.
type cpus struct {
	one  []int // the server
	two  []int // the server of section two
	load []int // generator, upstream and this program
}

// layout divides the CPUs. With two of them the server of section two shares both with the load.
func layout(all []int) cpus {
	c := cpus{one: all[:1], two: all[:min(2, len(all))], load: all[len(all)-1:]}
	if len(all) > 2 {
		c.load = all[2:]
	}
	return c
}
