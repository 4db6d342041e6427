//go:build !linux

package load

import (
	"time"
)

// pause sleeps for d, or for poll if that is less.
func pause(d time.Duration) { time.Sleep(min(d, poll)) }
