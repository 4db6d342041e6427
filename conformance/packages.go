package main

import (
	"maps"
	"path/filepath"
	"slices"
)

// nearListener are the plugins that have to do with listeners, their writers or what arrives there.
// Their tests are compared too, though most call the plugin without a server.
var nearListener = []string{
	"bind", "bufsize", "cache", "dnstap", "dynupdate", "forward", "multisocket", "proxyproto",
	"reload", "secondary", "shed", "transfer", "tsig", "view",
}

// serverPackages returns the directories of the packages in root whose tests start a CoreDNS server,
// with a Corefile or without, where fastudp can make a difference, and those of nearListener.
func serverPackages(root string) ([]string, error) {
	all, err := sources(root)
	if err != nil {
		return nil, err
	}
	dirs := map[string]bool{}
	for _, s := range all {
		near := filepath.Dir(s.dir) == "plugin" && slices.Contains(nearListener, filepath.Base(s.dir))
		if s.test() && (near || startsServer(s)) {
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
