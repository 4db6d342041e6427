package fastudp

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Steer names how the kernel picks the socket of a listener that gets a datagram.
type Steer string

// The ways to steer datagrams over the sockets of one listener.
const (
	SteerHash   Steer = "hash"   // by the flow's addresses and ports, the kernel's own way
	SteerCPU    Steer = "cpu"    // by the CPU that took the packet from the network
	SteerRandom Steer = "random" // each packet anywhere, one busy client over all sockets
)

// The accepted ranges of the options.
const (
	MaxSockets     = 1024
	MaxBatch       = 1024
	MaxFairnessCap = 65536
	MinBuffer      = 4 << 10   // bytes
	MaxBuffer      = 512 << 20 // bytes; the kernel doubles it and counts in an int, socket(7)
	MaxMaxInflight = 1 << 20
	MinGCGrowth    = 1 << 20 // bytes
	MaxGCGrowth    = 1 << 30 // bytes
)

const (
	defaultBatch       = 192
	defaultFairnessCap = 192 // a batch: what is no multiple has short ones
	defaultReadBuffer  = 4 << 20
	defaultMaxInflight = 10000
	defaultGCGrowth    = 64 << 20
	gcGrowthShare      = 8 // of the memory that the process may take: at most one eighth
)

// Options are what a server block asks of its plain DNS UDP listeners. Two blocks that share a
// listener agree when their Options are equal.
type Options struct {
	Sockets     int   // SO_REUSEPORT sockets for each address, 1..MaxSockets
	Batch       int   // messages for one recvmmsg or sendmmsg, 1..MaxBatch
	FairnessCap int   // messages served from one socket before it yields, 1..MaxFairnessCap
	ReadBuffer  int   // SO_RCVBUF of each socket, MinBuffer..MaxBuffer; 0 is 4 MiB as far as the system lets us
	WriteBuffer int   // SO_SNDBUF of each socket, likewise; 0 leaves the system's default
	Steer       Steer // how the kernel picks the socket
	MaxInflight int   // queries in handlers at once for each address, up to MaxMaxInflight; 0 is no bound
	GCGrowth    int   // bytes that the heap may grow by between frequent collections, MinGCGrowth..MaxGCGrowth; 0 leaves it to GOGC
}

// check says which option is out of its range.
func (o Options) check() error {
	for _, f := range []struct {
		name          string
		value, lo, hi int
	}{
		{"sockets", o.Sockets, 1, MaxSockets},
		{"batch", o.Batch, 1, MaxBatch},
		{"fairness_cap", o.FairnessCap, 1, MaxFairnessCap},
		{"read_buffer", o.ReadBuffer, MinBuffer, MaxBuffer},
		{"write_buffer", o.WriteBuffer, MinBuffer, MaxBuffer},
		{"max_inflight", o.MaxInflight, 0, MaxMaxInflight},
		{"gc_growth", o.GCGrowth, MinGCGrowth, MaxGCGrowth},
	} {
		unset := f.value == 0 && (strings.HasSuffix(f.name, "_buffer") || f.name == "gc_growth")
		if !unset && (f.value < f.lo || f.value > f.hi) {
			return fmt.Errorf("%s %d is out of range: give a number from %d to %d", f.name, f.value, f.lo, f.hi)
		}
	}
	if o.Steer != SteerHash && o.Steer != SteerCPU && o.Steer != SteerRandom {
		return fmt.Errorf("steer %q is not one of %s, %s, %s", o.Steer, SteerHash, SteerCPU, SteerRandom)
	}
	return nil
}

// diff names the options in which o and p differ.
func (o Options) diff(p Options) string {
	var d []string
	add := func(name string, a, b any) {
		if a != b {
			d = append(d, fmt.Sprintf("%s %v, not %v", name, a, b))
		}
	}
	add("sockets", o.Sockets, p.Sockets)
	add("batch", o.Batch, p.Batch)
	add("fairness_cap", o.FairnessCap, p.FairnessCap)
	add("read_buffer", o.buffers().read, p.buffers().read)
	add("write_buffer", o.WriteBuffer, p.WriteBuffer)
	add("steer", o.Steer, p.Steer)
	add("max_inflight", o.MaxInflight, p.MaxInflight)
	add("gc_growth", o.GCGrowth, p.GCGrowth)
	return strings.Join(d, "; ")
}

// gcGrowth is the default: less where memory is scarce.
var gcGrowth = sync.OnceValue(func() int {
	return growthFor(min(memoryLimit(), uint64(debug.SetMemoryLimit(-1))))
})

func growthFor(limit uint64) int {
	n := int(min(limit/gcGrowthShare, defaultGCGrowth))
	if n < MinGCGrowth {
		return 0
	}
	return n
}

// DefaultOptions are those of a bare "fastudp". The number of sockets follows GOMAXPROCS, which
// CoreDNS sets from the CPU quota of its cgroup, and GCGrowth follows its memory limit.
func DefaultOptions() Options {
	return Options{
		Sockets:     min(runtime.GOMAXPROCS(0), MaxSockets),
		Batch:       defaultBatch,
		FairnessCap: defaultFairnessCap,
		Steer:       SteerHash,
		MaxInflight: defaultMaxInflight,
		GCGrowth:    gcGrowth(),
	}
}
