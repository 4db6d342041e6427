package main

import "github.com/fastudp/fastudp/internal/child"

// keepAwake keeps a CPU from its idle states with a process that runs when nothing else wants to,
// SCHED_IDLE in sched(7).
func keepAwake(cpu int) (*child.Child, error) {
	return child.Start(child.Options{CPUs: []int{cpu}}, "chrt", "--idle", "0", "sh", "-c", "while :; do :; done")
}
