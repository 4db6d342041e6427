//go:build !linux

package child

import (
	"errors"
	"os"
)

// Child is a process that we have started.
type Child struct{}

// Start fails: this system has no /proc.
func Start(Options, ...string) (*Child, error) { return nil, errors.ErrUnsupported }

// PID is the process's.
func (c *Child) PID() int { return 0 }

// Usage is what the process has used.
func (c *Child) Usage() (Usage, error) { return Usage{}, errors.ErrUnsupported }

// Signal sends s to the process.
func (c *Child) Signal(os.Signal) error { return errors.ErrUnsupported }

// Stop ends the process.
func (c *Child) Stop() error { return errors.ErrUnsupported }

// Done is closed when the process has ended.
func (c *Child) Done() <-chan struct{} { return nil }

// Log is what the process has written.
func (c *Child) Log() string { return "" }
