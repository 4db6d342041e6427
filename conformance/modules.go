package main

import (
	"debug/buildinfo"
	"fmt"
)

// differentModules compares what two binaries are made of: if our go.mod raises the version of a
// module, a test that fails may be that module's fault.
func differentModules(stock, fast string) (differ []string, err error) {
	was, err := modules(stock)
	if err != nil {
		return nil, err
	}
	is, err := modules(fast)
	if err != nil {
		return nil, err
	}
	for _, path := range is.order {
		if path == fastUDP {
			continue
		}
		if before, ok := was.version[path]; ok && before != is.version[path] {
			differ = append(differ, fmt.Sprintf("%s %s, with fastudp %s", path, before, is.version[path]))
		}
	}
	return differ, nil
}

type moduleSet struct {
	order   []string
	version map[string]string
}

func modules(binary string) (set moduleSet, err error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return set, err
	}
	set.version = map[string]string{}
	for _, m := range info.Deps {
		set.order = append(set.order, m.Path)
		set.version[m.Path] = m.Version
	}
	return set, nil
}
