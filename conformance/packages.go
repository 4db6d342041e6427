package main

import (
	"maps"
	"slices"
)

// serverPackages returns the directories of the packages in root whose tests start a CoreDNS server,
// with a Corefile or without: only there can fastudp make a difference.
func serverPackages(root string) ([]string, error) {
	all, err := sources(root)
	if err != nil {
		return nil, err
	}
	dirs := map[string]bool{}
	for _, s := range all {
		if s.test() && startsServer(s) {
			dirs[s.dir] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs)), nil
}

func startsServer(s *source) bool {
	has := func(kind callKind) bool {
		return slices.ContainsFunc(s.calls, func(c call) bool { return c.kind == kind })
	}
	return has(starts) || has(helps) || has(constructs) && has(serves)
}
