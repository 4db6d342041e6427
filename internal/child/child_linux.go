package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a process that we have started.
type Child struct {
	name string
	cmd  *exec.Cmd
	log  tail
	done chan struct{}
	err  error // of the end; set before done is closed
}

// stopLimit is how long a child may take to end by itself.
const stopLimit = 10 * time.Second

// Start runs argv. The child gets SIGKILL when we end, however we do.
func Start(o Options, argv ...string) (*Child, error) {
	if len(argv) == 0 {
		return nil, errors.New("child: no program")
	}
	c := &Child{name: o.Name, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	if c.name == "" {
		c.name = filepath.Base(argv[0])
	}
	c.cmd.Dir = o.Dir
	c.cmd.Env = append(os.Environ(), o.Env...)
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	c.cmd.WaitDelay = time.Second // a grandchild may keep our pipe open
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go c.run(o, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("child %s: %w", c.name, err)
	}
	return c, nil
}

// run has a thread of its own for as long as the child lives: a child inherits its CPUs and its network
// namespace from the thread that starts it, and Pdeathsig comes when that thread ends. The thread is
// not given back, so it needs no repair.
func (c *Child) run(o Options, started chan<- error) {
	runtime.LockOSThread()
	if err := prepareThread(o); err != nil {
		started <- err
		return
	}
	if err := c.cmd.Start(); err != nil {
		started <- err
		return
	}
	started <- nil
	c.err = c.cmd.Wait()
	close(c.done)
}

func prepareThread(o Options) error {
	var cpus unix.CPUSet
	for _, n := range o.CPUs {
		cpus.Set(n)
	}
	if len(o.CPUs) == 0 {
		cpus.Fill() // we may be pinned ourselves
	}
	if err := unix.SchedSetaffinity(0, &cpus); err != nil {
		return fmt.Errorf("CPUs %v: %w", o.CPUs, err)
	}
	if o.Netns == "" {
		return nil
	}
	ns, err := os.Open(filepath.Join("/run/netns", o.Netns))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace %s: %w", o.Netns, err)
	}
	return nil
}

// PID is the process's.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Signal sends s to the process.
func (c *Child) Signal(s os.Signal) error { return c.cmd.Process.Signal(s) }

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Log is the last MiB that the process has written to stdout and stderr.
func (c *Child) Log() string { return c.log.String() }

// Stop ends the process: SIGTERM, after 10 s SIGKILL. It is an error if it has ended before, does not
// end by itself, or ends with other than 0.
func (c *Child) Stop() error {
	select {
	case <-c.done:
		return fmt.Errorf("child %s: ended by itself: %w", c.name, ended(c.err))
	default:
	}
	if err := c.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("child %s: %w", c.name, err)
	}
	select {
	case <-c.done:
	case <-time.After(stopLimit):
		c.Signal(syscall.SIGKILL)
		<-c.done
		return fmt.Errorf("child %s: did not end within %v of SIGTERM", c.name, stopLimit)
	}
	if c.err != nil {
		return fmt.Errorf("child %s: %w", c.name, c.err)
	}
	return nil
}

func ended(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}
