package fastudp

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// singleIO does the I/O of one socket with one system call a datagram, by package net alone. It
// serves where there is no recvmmsg and sendmmsg.
type singleIO struct {
	udp     *net.UDPConn
	pktinfo bool
	count   *counters
	control []byte
}

func newSingleIO(c *net.UDPConn, pktinfo bool, count *counters) *singleIO {
	s := &singleIO{udp: c, pktinfo: pktinfo, count: count}
	if pktinfo {
		s.control = make([]byte, max(len(ipv4.NewControlMessage(ipv4.FlagDst)), len(ipv6.NewControlMessage(ipv6.FlagDst)))*2)
	}
	return s
}

// drainWait is how long the last datagrams may take to come out of a socket that is drained.
const drainWait = time.Millisecond

func (s *singleIO) receive(ps []packet, wait bool) (int, bool, error) {
	p := &ps[0]
	for looks := 0; ; {
		intime := true
		if !wait {
			end := time.Now().Add(drainWait)
			s.udp.SetReadDeadline(end)
			intime = time.Until(end) > drainWait/2
		}
		n, oobn, flags, from, err := s.udp.ReadMsgUDPAddrPort(p.data[:maxQuery], s.control)
		switch {
		case err == nil:
			p.data = p.data[:n]
			p.long = flags&msgTrunc != 0 || n == maxQuery
			p.peer = peer{addr: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
			if s.pktinfo {
				p.peer.local = s.local(s.control[:oobn])
			}
			return 1, false, nil
		case !os.IsTimeout(err):
			return 0, false, err
		case wait:
			s.udp.SetReadDeadline(time.Time{})
			return 0, false, err
		case intime:
			looks++
		}
		// Package net does not look at the socket when the time is over already, as it is when the
		// machine was busy: one look proves nothing.
		if looks == 2 {
			s.udp.SetReadDeadline(time.Time{})
			return 0, false, nil
		}
	}
}

// local finds the address that a datagram was sent to.
func (s *singleIO) local(control []byte) netip.Addr {
	var ip net.IP
	var v6 ipv6.ControlMessage
	var v4 ipv4.ControlMessage
	if v6.Parse(control) == nil && v6.Dst != nil {
		ip = v6.Dst
	} else if v4.Parse(control) == nil && v4.Dst != nil {
		ip = v4.Dst
	}
	a, _ := netip.AddrFromSlice(ip)
	return a
}

func (s *singleIO) send(rs []*reply) error {
	for i, r := range rs {
		var control []byte
		if l := r.peer.local; l.IsValid() {
			if l.Is4() || l.Is4In6() {
				control = (&ipv4.ControlMessage{Src: l.Unmap().AsSlice()}).Marshal()
			} else {
				control = (&ipv6.ControlMessage{Src: l.AsSlice()}).Marshal()
			}
		}
		_, _, err := s.udp.WriteMsgUDPAddrPort(r.buf, control, r.peer.addr)
		switch {
		case err == nil:
			s.count.sends.add(1)
			s.count.sent.Add(1)
		case isClosed(err) || os.IsTimeout(err):
			s.count.sendError("closed", len(rs)-i)
			return err
		default:
			s.count.sendError(errorName(err), 1)
		}
	}
	return nil
}

func (s *singleIO) pause() { runtime.Gosched() }

func (s *singleIO) interrupt() { s.udp.SetReadDeadline(time.Unix(1, 0)) }

// detach does nothing: what comes while the socket is drained is answered too.
func (s *singleIO) detach() {}

func (s *singleIO) conn() *net.UDPConn { return s.udp }

func (s *singleIO) close() { s.udp.Close() }
