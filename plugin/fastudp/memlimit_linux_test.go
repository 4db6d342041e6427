package fastudp

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestGroupLimit: the least limit of the group and of all above it counts, in both versions of cgroups(7).
func TestGroupLimit(t *testing.T) {
	for name, k := range map[string]struct {
		groups string
		files  map[string]string
		want   uint64
	}{
		"version 2":              {"0::/system.slice/coredns.service\n", map[string]string{"system.slice/coredns.service/memory.max": "178257920\n"}, 170 << 20},
		"no limit":               {"0::/a\n", map[string]string{"a/memory.max": "max\n"}, math.MaxUint64},
		"a parent's":             {"0::/a/b\n", map[string]string{"a/b/memory.max": "max\n", "a/memory.max": "1000\n", "memory.max": "2000\n"}, 1000},
		"throttled before":       {"0::/a\n", map[string]string{"a/memory.max": "3000\n", "a/memory.high": "2000\n"}, 2000},
		"with another one":       {"4:hugetlb,memory:/x\n", map[string]string{"hugetlb,memory/x/memory.limit_in_bytes": "4000\n"}, 4000},
		"in a container":         {"0::/\n", map[string]string{"memory.max": "3000\n"}, 3000},
		"with the host's path":   {"0::/kubepods/pod1\n", map[string]string{"memory.max": "3000\n"}, 3000},
		"version 1":              {"5:cpu,cpuacct:/x\n4:memory:/docker/1\n1:name=systemd:/\n", map[string]string{"memory/docker/1/memory.limit_in_bytes": "4000\n"}, 4000},
		"version 1, container":   {"4:memory:/docker/1\n0::/\n", map[string]string{"memory/memory.limit_in_bytes": "4000\n"}, 4000},
		"another controller's":   {"5:cpu:/x\n", map[string]string{"memory/x/memory.limit_in_bytes": "5", "x/memory.max": "5"}, math.MaxUint64},
		"dots lead nowhere else": {"0::/../../x\n", map[string]string{"x/memory.max": "6000\n"}, 6000},
		"nonsense":               {"\n:\n0:\n0::a\nx\n", map[string]string{"memory.max": "-1\n"}, math.MaxUint64},
		"nothing":                {"", nil, math.MaxUint64},
	} {
		root := t.TempDir()
		for file, text := range k.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := groupLimit(root, k.groups); got != k.want {
			t.Errorf("%s: %d, want %d", name, got, k.want)
		}
	}
	if got := memoryLimit(); got < 1<<20 || got == math.MaxUint64 {
		t.Errorf("this host has %d bytes", got)
	}
}
