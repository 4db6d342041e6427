package child

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is what the process has used.
func (c *Child) Usage() (Usage, error) {
	u, err := usage(c.PID())
	if err != nil {
		return Usage{}, fmt.Errorf("child %s: %w", c.name, err)
	}
	return u, nil
}

func usage(pid int) (Usage, error) {
	var u Usage
	var err error
	if u.User, u.System, err = cpuTime(pid); err != nil {
		return u, err
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	u.RSS = 1024 * field(status, "VmRSS:")
	u.PeakRSS = 1024 * field(status, "VmHWM:")
	u.AnonRSS = 1024 * field(status, "RssAnon:")
	u.Threads = int(field(status, "Threads:"))
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return u, err
	}
	u.FDs = len(fds)
	// The switches in the process's own status are those of its first thread.
	tasks, err := filepath.Glob(filepath.Join(dir, "task", "*", "status"))
	if err != nil {
		return u, err
	}
	for _, t := range tasks {
		if status, err := os.ReadFile(t); err == nil { // the thread may have ended
			u.VoluntarySwitches += field(status, "\nvoluntary_ctxt_switches:")
			u.InvoluntarySwitches += field(status, "nonvoluntary_ctxt_switches:")
		}
	}
	return u, nil
}

// field is the number that follows key in a /proc status file.
func field(status []byte, key string) int64 {
	_, after, ok := bytes.Cut(status, []byte(key))
	if !ok {
		return 0
	}
	var n int64
	fmt.Sscan(string(after[:min(len(after), 64)]), &n)
	return n
}

// cpuTime reads the sum from the process's CPU clock, in nanoseconds, and divides it as the ticks of
// 10 ms in /proc/PID/stat do. Both count threads that have ended.
func cpuTime(pid int) (user, system time.Duration, err error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(cpuClock(pid), &ts); err != nil {
		return 0, 0, fmt.Errorf("CPU clock: %w", err)
	}
	sum := time.Duration(ts.Nano())
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The second field is the name in parentheses, which may have spaces; user and system are 14 and 15.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(f) < 13 {
		return 0, 0, errors.New("/proc/PID/stat is too short")
	}
	u, err1 := strconv.ParseInt(f[11], 10, 64)
	s, err2 := strconv.ParseInt(f[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, err
	}
	if u+s == 0 {
		return sum, 0, nil
	}
	user = time.Duration(float64(sum) * float64(u) / float64(u+s))
	return user, sum - user, nil
}

// cpuClock is the clock of a process's CPU time, see clock_getcpuclockid(3).
func cpuClock(pid int) int32 { return int32(^pid<<3 | 2) }
