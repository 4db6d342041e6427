package fastudp

import (
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memoryLimit is how much memory the process may take, in bytes: the host's or the least that a control
// group allows, cgroups(7).
func memoryLimit() uint64 {
	limit := uint64(math.MaxUint64)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		limit = uint64(info.Totalram) * uint64(info.Unit)
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	return min(limit, groupLimit("/sys/fs/cgroup", string(groups)))
}

// groupLimit reads the limits of the groups that a /proc/self/cgroup names, and of those above them. In a
// container the path may be the host's, and the container's own group is at the root.
func groupLimit(root, groups string) uint64 {
	limit := uint64(math.MaxUint64)
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		dir, files := root, []string{"memory.max", "memory.high"} // version 2 has no controllers in its line
		if slices.Contains(strings.Split(f[1], ","), "memory") {
			dir, files = root+"/"+f[1], []string{"memory.limit_in_bytes"}
		} else if f[1] != "" {
			continue
		}
		for p := path.Clean("/" + f[2]); ; p = path.Dir(p) {
			for _, file := range files {
				text, err := os.ReadFile(dir + p + "/" + file)
				if n, e := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && e == nil { // not "max"
					limit = min(limit, n)
				}
			}
			if p == "/" {
				break
			}
		}
	}
	return limit
}
