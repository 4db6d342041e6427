package child

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test program is its own child: it does what childDo says.
const childDo = "FASTUDP_CHILD_DO"

func TestMain(m *testing.M) {
	switch os.Getenv(childDo) {
	case "":
		os.Exit(m.Run())
	case "sleep":
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Minute)
	case "spin":
		os.Stdout.WriteString("ready\n")
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		}
	case "cpus":
		var s unix.CPUSet
		unix.SchedGetaffinity(0, &s)
		for i := range 1024 {
			if s.IsSet(i) {
				os.Stdout.WriteString(strconv.Itoa(i) + " ")
			}
		}
		os.Stdout.WriteString("ready\n")
		time.Sleep(time.Minute)
	case "parent":
		c, err := Start(Options{Env: []string{childDo + "=sleep"}}, os.Args[0])
		if err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString(strconv.Itoa(c.PID()) + " ready\n")
		time.Sleep(time.Minute)
	case "fail":
		os.Exit(3)
	}
	os.Exit(0)
}

func start(t *testing.T, do string, o Options) *Child {
	t.Helper()
	o.Env = append(o.Env, childDo+"="+do)
	c, err := Start(o, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Signal(syscall.SIGKILL); <-c.Done() })
	return c
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 20 s: ", what)
		}
	}
}

func ready(t *testing.T, c *Child) string {
	t.Helper()
	eventually(t, "the child is ready", func() bool { return strings.Contains(c.Log(), "ready\n") })
	return c.Log()
}

func TestUsage(t *testing.T) {
	c := start(t, "spin", Options{})
	ready(t, c)
	eventually(t, "the child uses 50 ms of user time", func() bool {
		u, err := c.Usage()
		if err != nil {
			t.Fatal(err)
		}
		return u.User > 50*time.Millisecond
	})
	u, err := c.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if u.RSS < 1<<20 || u.PeakRSS < u.RSS/2 || u.AnonRSS < 1<<18 || u.AnonRSS >= u.RSS || u.FDs < 3 || u.Threads < 2 || u.VoluntarySwitches+u.InvoluntarySwitches == 0 {
		t.Errorf("usage of a Go program that spins: %+v", u)
	}
	if (u.User+u.System)%(10*time.Millisecond) == 0 {
		t.Errorf("CPU time %v is in ticks of 10 ms", u.User+u.System)
	}
}

// TestUsageOwn: a process's clock reads as the process itself reads it.
func TestUsageOwn(t *testing.T) {
	before := self(t)
	u, s, err := cpuTime(os.Getpid())
	after := self(t)
	if err != nil || u+s < before || u+s > after {
		t.Errorf("CPU time %v (%v), between %v and %v by our own clock", u+s, err, before, after)
	}
}

func self(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

func TestCPUs(t *testing.T) {
	all := strings.TrimSuffix(ready(t, start(t, "cpus", Options{})), " ready\n")
	list := strings.Fields(all)
	last, err := strconv.Atoi(list[len(list)-1])
	if err != nil {
		t.Fatal(err)
	}
	if got := ready(t, start(t, "cpus", Options{CPUs: []int{last}})); got != strconv.Itoa(last)+" ready\n" {
		t.Errorf("the child runs on CPUs %q, want %d alone", got, last)
	}
	var ours unix.CPUSet
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedGetaffinity(0, &ours); err != nil || ours.Count() != len(list) {
		t.Errorf("we run on %d CPUs (%v) after a child was pinned, want %d", ours.Count(), err, len(list))
	}
	if _, err := Start(Options{CPUs: []int{1023}}, "true"); err == nil {
		t.Error("a CPU that is not there is accepted")
	}
}

func TestStop(t *testing.T) {
	for do, want := range map[string]string{"sleep": "signal: terminated", "fail": "ended by itself: exit status 3", "none": "ended by itself: exit status 0"} {
		c := start(t, do, Options{Name: "it"})
		if do == "sleep" {
			ready(t, c)
		} else {
			<-c.Done()
		}
		if err := c.Stop(); err == nil || err.Error() != "child it: "+want {
			t.Errorf("%s: Stop says %v, want %q", do, err, want)
		}
	}
	c, err := Start(Options{}, "sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	if err != nil {
		t.Fatal(err)
	}
	ready(t, c)
	if err := c.Stop(); err != nil {
		t.Errorf("Stop of a child that ends with 0 says %v", err)
	}
}

// TestParentDies: nothing is left behind.
func TestParentDies(t *testing.T) {
	parent := start(t, "parent", Options{})
	pid, err := strconv.Atoi(strings.Fields(ready(t, parent))[0])
	if err != nil {
		t.Fatal(err)
	}
	parent.Signal(syscall.SIGKILL)
	<-parent.Done()
	eventually(t, "the grandchild is gone", func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ") // nobody may reap it
	})
}

func TestNetns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	name := "fastudpchild" + strconv.Itoa(os.Getpid())
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("needs ip netns: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", name).Run() })
	c := start(t, "sleep", Options{Netns: name})
	ready(t, c)
	ours, err1 := os.Readlink("/proc/self/ns/net")
	its, err2 := os.Readlink("/proc/" + strconv.Itoa(c.PID()) + "/ns/net")
	if err1 != nil || err2 != nil || ours == its {
		t.Errorf("network namespaces: ours %s (%v), the child's %s (%v)", ours, err1, its, err2)
	}
	if _, err := Start(Options{Netns: "no-such-namespace"}, "true"); err == nil {
		t.Error("a namespace that is not there is accepted")
	}
}

func TestLogIsBounded(t *testing.T) {
	var l tail
	for i := range 5 << 20 / 16 {
		l.Write([]byte(strings.Repeat(string(rune('a'+i%26)), 15) + "\n"))
	}
	if n := len(l.String()); n != tailSize || cap(l.buf) > 8*tailSize {
		t.Errorf("%d bytes are kept in %d, want %d", n, cap(l.buf), tailSize)
	}
	l.Write([]byte("the end"))
	if !strings.HasSuffix(l.String(), "\nthe end") {
		t.Error("the end is not kept")
	}
}
