package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// pinned returns in a process that runs on the load's CPUs alone, as everything that it starts will,
// with the folder of the servers. A process can not move its running threads, so it executes itself.
func pinned(ctx context.Context) (dir string, err error) {
	if dir = os.Getenv(dirEnv); dir != "" {
		return dir, nil
	}
	all, err := usableCPUs()
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "fastudp-bench-"); err != nil {
		return "", err
	}
	if err = build(ctx, dir); err == nil {
		err = reexec(all, "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", dirEnv+"="+dir, cpusEnv+"="+joinInts(all))
	}
	os.RemoveAll(dir)
	return "", err
}

func reexec(all []int, env ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	var set unix.CPUSet
	for _, n := range layout(all).load {
		set.Set(n)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	return fmt.Errorf("executing ourselves: %w", syscall.Exec(self, os.Args, append(os.Environ(), env...)))
}

func usableCPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var all []int
	for n := range 8 * len(set) * 8 {
		if set.IsSet(n) {
			all = append(all, n)
		}
	}
	return all, nil
}
