package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fastudp/fastudp/internal/child"
	"golang.org/x/sys/unix"
)

// usage is what a server has used with the processes that it has forked, as NSD does.
func usage(c *child.Child) (child.Usage, error) {
	u, err := c.Usage()
	if err != nil {
		return u, err
	}
	for _, pid := range descendants(c.PID()) {
		user, system, peak, err := usageOf(pid)
		if err != nil {
			continue // it has ended
		}
		u.User += user
		u.System += system
		u.PeakRSS += peak
	}
	return u, nil
}

// descendants are the processes below pid.
func descendants(pid int) (all []int) {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range tasks {
		list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		for _, f := range strings.Fields(string(list)) {
			if n, err := strconv.Atoi(f); err == nil {
				all = append(append(all, n), descendants(n)...)
			}
		}
	}
	return all
}

// usageOf reads the process's CPU clock and divides it as the ticks in stat do.
func usageOf(pid int) (user, system time.Duration, peakRSS int64, err error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		return 0, 0, 0, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var u, s float64
	if f := strings.Fields(rest); len(f) > 12 {
		u, _ = strconv.ParseFloat(f[11], 64)
		s, _ = strconv.ParseFloat(f[12], 64)
	}
	user = time.Duration(float64(ts.Nano()) * u / max(u+s, 1))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if _, after, ok := strings.Cut(string(status), "VmHWM:"); ok {
		fmt.Sscan(after, &peakRSS)
	}
	return user, time.Duration(ts.Nano()) - user, peakRSS << 10, err
}

// busy is how long the CPUs have worked so far, for whomever.
func busy(cpus []int) (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(string(stat), cpus)
}
