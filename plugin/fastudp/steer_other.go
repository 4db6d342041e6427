//go:build !linux

package fastudp

import "net"

func attachSteer(*net.UDPConn, Steer, int) error { return nil }

func foreignSocket(*net.UDPConn) bool { return false }
