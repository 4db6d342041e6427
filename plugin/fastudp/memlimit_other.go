//go:build !linux

package fastudp

import "math"

// memoryLimit is not known.
func memoryLimit() uint64 { return math.MaxUint64 }
