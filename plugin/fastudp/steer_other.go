//go:build !linux

package fastudp

import (
	"errors"
	"net"
)

func steer(_ *net.UDPConn, how Steer, _ int) error {
	if how == SteerHash {
		return nil
	}
	return errors.ErrUnsupported
}
