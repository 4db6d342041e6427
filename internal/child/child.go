// Package child runs a server in a process of its own and reads what it uses. It works on Linux alone;
// elsewhere Start returns errors.ErrUnsupported.
package child

import "time"

// Options says where and how a child runs.
type Options struct {
	Name  string   // in errors; empty: that of the program
	CPUs  []int    // on which it may run; empty: all
	Env   []string // besides ours
	Dir   string   // in which it runs; empty: ours
	Netns string   // the network namespace's name, as of ip-netns(8); empty: ours
}

// Usage is what a child has used so far, with all its threads.
type Usage struct {
	User, System        time.Duration
	RSS, PeakRSS        int64 // bytes
	AnonRSS             int64 // the part of RSS that is no file's: without the program's own pages
	FDs, Threads        int
	VoluntarySwitches   int64 // of the threads that still run, as the next
	InvoluntarySwitches int64
}
