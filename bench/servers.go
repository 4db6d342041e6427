package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// place is where a server runs.
type place struct {
	host    string
	port    int
	metrics int    // port of CoreDNS's metrics
	spare   int    // port of the server block that they are in
	netns   string // empty: ours
	cpus    []int
}

func (p place) addr() string { return fmt.Sprintf("%s:%d", p.host, p.port) }

// server is a name server, or an echo, that can be started.
type server struct {
	name    string
	program string // that it needs; empty: one of ours
	coredns bool   // it can do every work
	any     bool   // it answers anything, with no data
	fastudp bool   // it has fastudp's metrics
	env     []string
	// command writes the configuration to dir and says how to start.
	command func(dir string, p place, w work) ([]string, error)
}

// can says whether the server can do the work.
func (s server) can(w work) bool { return s.coredns || s.any || w.zone != "" }

// missing says what keeps the server from running here, empty if nothing.
func (s server) missing() string {
	if s.program == "" {
		return ""
	}
	if _, err := exec.LookPath(s.program); err != nil {
		return s.program + " is not installed"
	}
	return ""
}

const (
	stockName   = "stock"
	fastudpName = "fastudp"
	floorName   = "echo in C"

	// What the collector's pace is worth: fastudp with that of stock, and stock with about that of fastudp.
	fastudpOften = "fastudp gc_growth off"
	stockRarely  = "stock GOGC=1000"
)

// servers are all that there are, those of CoreDNS and the echoes first. bin is the folder of ours.
func servers(bin, self string) []server {
	ours := func(name, program, listener string) server {
		return server{
			name: name, coredns: true, fastudp: strings.Contains(listener, "fastudp"),
			command: func(dir string, p place, w work) ([]string, error) {
				return coreDNS(filepath.Join(bin, program), dir, listener, p, w)
			},
		}
	}
	alone := ours("listener alone", "coredns-echo", "fastudp 1")
	alone.coredns, alone.any = false, true
	command := alone.command
	alone.command = func(dir string, p place, w work) ([]string, error) {
		w.plugins = "echo"
		return command(dir, p, w)
	}
	rarely := ours(stockRarely, "coredns", "")
	rarely.env = []string{"GOGC=1000"}
	return append([]server{
		ours(stockName, "coredns", ""),
		ours(fastudpName, "coredns", "fastudp 1"),
		ours("multisocket", "coredns", "multisocket 2"),
		ours("multisocket+shed", "coredns", "multisocket 2\nshed"),
		ours("fastudp 2 hash", "coredns", "fastudp 2"),
		ours("fastudp 2 random", "coredns", "fastudp 2 {\nsteer random\n}"),
		ours("fastudp 4 hash", "coredns", "fastudp 4"),
		ours("fastudp 2 cpu", "coredns", "fastudp 2 {\nsteer cpu\n}"),
		ours(fastudpOften, "coredns", "fastudp 1 {\ngc_growth off\n}"),
		rarely,
		alone,
		{name: "echo in Go", any: true, command: func(_ string, p place, _ work) ([]string, error) {
			return []string{self, "echo", p.addr()}, nil
		}},
		{name: floorName, any: true, program: filepath.Join(bin, "echo-c"), command: func(_ string, p place, _ work) ([]string, error) {
			return []string{filepath.Join(bin, "echo-c"), p.host, fmt.Sprint(p.port)}, nil
		}},
	}, peers...)
}

// coreDNS writes a Corefile. The metrics are in a block of their own, so that they are not in the
// chain that is measured, and every listener has it, so that all pay alike.
func coreDNS(program, dir, listener string, p place, w work) ([]string, error) {
	metrics := fmt.Sprintf("%s:%d", p.host, p.metrics)
	corefile := fmt.Sprintf(".:%d {\nbind %s\n%s\n%s\n}\nmetrics.invalid:%d {\nbind %s\nprometheus %s\n}\n",
		p.port, p.host, listener, strings.ReplaceAll(w.plugins, "%METRICS%", metrics), p.spare, p.host, metrics)
	file, err := write(dir, "Corefile", corefile)
	return []string{program, "-quiet", "-conf", file}, err
}

func write(dir, name, content string) (string, error) {
	file := filepath.Join(dir, name)
	return file, os.WriteFile(file, []byte(content), 0o644)
}
