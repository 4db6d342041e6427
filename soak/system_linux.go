package main

import (
	"net"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin has all our threads run on one CPU until restore; the threads to come inherit it. It says which
// CPUs the server and we have: none if there is but one.
func pin() (server []int, restore func(), err error) {
	if runtime.NumCPU() < 2 {
		return nil, func() {}, nil
	}
	var all, ours unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, nil, err
	}
	var cpus []int
	for i := 0; len(cpus) < 2; i++ {
		if all.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	ours.Set(cpus[1])
	if err := setAll(&ours); err != nil {
		return nil, nil, err
	}
	return cpus[:1], func() { setAll(&all) }, nil
}

func setAll(set *unix.CPUSet) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}

// reloadSignal has caddy reload.
const reloadSignal = unix.SIGUSR1

// runDelay is how long the process's threads have waited for a CPU, in ns, see /proc/PID/schedstat in proc(5).
func runDelay(pid int) int64 {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, _ := os.ReadDir(dir)
	var sum int64
	for _, t := range tasks {
		b, _ := os.ReadFile(dir + t.Name() + "/schedstat")
		sum += second(string(b))
	}
	return sum
}

// rawSocket sends whole UDP or ICMP messages, whose headers we make up; it needs root.
func rawSocket(proto string) (net.PacketConn, error) {
	return net.ListenPacket("ip4:"+proto, "127.0.0.1")
}
