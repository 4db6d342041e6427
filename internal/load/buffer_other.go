//go:build !linux

package load

import "net"

func setReceiveBuffer(c *net.UDPConn) { c.SetReadBuffer(receiveBuffer) }

func overrun(*net.UDPConn) uint64 { return 0 }
