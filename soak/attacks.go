package main

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

var attacks = []attack{
	{"a client that never reads", neverRead},
	{"clients that vanish", vanish},
	{"spoofed source port 0", portZero},
	{"port unreachable in bulk", unreachable},
	{"forged port unreachable", forgedUnreachable},
	{"packets of 0 bytes", empty},
}

var whoami = whoamiQuestion()[0]

// burst sends b n times. An earlier packet's ICMP error is no error.
func burst(c net.Conn, b []byte, n int) (int, error) {
	for range n {
		if _, err := c.Write(b); err != nil && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOBUFS) {
			return 0, err
		}
	}
	return n, nil
}

func dial(to netip.AddrPort) (*net.UDPConn, error) {
	return net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
}

func withSocket(to netip.AddrPort, f func(*net.UDPConn) (int, error)) (int, error) {
	c, err := dial(to)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return f(c)
}

// neverRead asks for more than its small receive queue holds.
func neverRead(to netip.AddrPort) (int, error) {
	return withSocket(to, func(c *net.UDPConn) (int, error) {
		c.SetReadBuffer(4096)
		n, err := burst(c, whoami, 2000)
		time.Sleep(10 * time.Millisecond)
		return n, err
	})
}

// vanish has many clients that ask once and are gone.
func vanish(to netip.AddrPort) (int, error) {
	sent := 0
	for range 200 {
		n, err := withSocket(to, func(c *net.UDPConn) (int, error) { return burst(c, whoami, 1) })
		if err != nil {
			return sent, err
		}
		sent += n
	}
	return sent, nil
}

// unreachable has the answers of a long queue come back as port unreachable.
func unreachable(to netip.AddrPort) (int, error) {
	return withSocket(to, func(c *net.UDPConn) (int, error) { return burst(c, whoami, 1000) })
}

func empty(to netip.AddrPort) (int, error) {
	return withSocket(to, func(c *net.UDPConn) (int, error) { return burst(c, nil, 1000) })
}

// udpHeader is that of a datagram with n bytes of data; its checksum is left out.
func udpHeader(from, to uint16, n int) []byte {
	b := binary.BigEndian.AppendUint16(nil, from)
	b = binary.BigEndian.AppendUint16(b, to)
	b = binary.BigEndian.AppendUint16(b, uint16(8+n))
	return append(b, 0, 0)
}

// raw sends n packets that packet makes; 0 are sent if we may not.
func raw(proto string, n int, packet func() []byte) (int, error) {
	c, err := rawSocket(proto)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for range n {
		if _, err := c.WriteTo(packet(), &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil && !errors.Is(err, syscall.ENOBUFS) {
			return 0, err
		}
	}
	return n, nil
}

// portZero asks from a port to which no answer can be sent.
func portZero(to netip.AddrPort) (int, error) {
	p := append(udpHeader(0, to.Port(), len(whoami)), whoami...)
	return raw("udp", 1000, func() []byte { return p })
}

// forgedUnreachable says of answers that were never sent that their client is gone.
func forgedUnreachable(to netip.AddrPort) (int, error) {
	return raw("icmp", 1000, func() []byte {
		const length = 20 + 8
		ip := []byte{0x45, 0, 0, length, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1}
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		icmp := append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, ip...) // destination unreachable, port
		icmp = append(icmp, udpHeader(to.Port(), uint16(1024+rand.IntN(60000)), 0)...)
		binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
		return icmp
	})
}

// checksum is the Internet's, RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 > 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
