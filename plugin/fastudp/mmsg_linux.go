package fastudp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of recvmmsg(2) and sendmmsg(2), which x/sys does not have.
type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
}

// controlSpace holds one IP_PKTINFO or IPV6_PKTINFO control message.
var controlSpace = unix.CmsgSpace(unix.SizeofInet6Pktinfo)

// vector is an array of messages for one system call, with the memory that their headers point to.
type vector struct {
	msgs    []mmsghdr
	iovs    []unix.Iovec
	names   []unix.RawSockaddrInet6 // large enough for IPv4 too
	control []byte
	space   int // of control for each message
}

func newVector(n, space int) *vector {
	v := &vector{
		msgs: make([]mmsghdr, n), iovs: make([]unix.Iovec, n),
		names: make([]unix.RawSockaddrInet6, n), control: make([]byte, n*space), space: space,
	}
	for i := range v.msgs {
		h := &v.msgs[i].hdr
		h.Iov = &v.iovs[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&v.names[i]))
		h.Control = &v.control[i*space]
	}
	return v
}

// mmsgIO does the I/O of one socket with recvmmsg and sendmmsg.
type mmsgIO struct {
	udp     *net.UDPConn
	raw     syscall.RawConn
	inet6   bool // the socket is AF_INET6, also for IPv4 clients
	pktinfo bool
	count   *counters
	turn    *turn

	rx     *vector
	rxMax  int // messages to receive at once
	rxWait bool
	rxN    int
	rxErr  error
	waited bool
	rxFunc func(fd uintptr) bool

	tx     *vector
	groups *grouping
	txOff  int // messages done with
	txDone int // responses in them
	txFunc func(fd uintptr) bool

	_ [128]byte // as in counters
}

// newMmsgIO makes the I/O of c, which receives into packets and sends at most batch at once.
func newMmsgIO(c *net.UDPConn, pktinfo bool, packets []packet, batch int, count *counters) (*mmsgIO, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	m := &mmsgIO{
		udp: c, raw: raw, pktinfo: pktinfo, count: count,
		rx: newVector(len(packets), controlSpace), tx: newVector(batch, controlSpace+segmentSpace), groups: newGrouping(batch),
	}
	var family int
	if e := raw.Control(func(fd uintptr) {
		_, unknown := unix.GetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT)
		m.groups.never = unknown != nil // before Linux 4.18
		family, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
	}); e != nil || err != nil {
		return nil, os.NewSyscallError("getsockopt", err)
	}
	m.inet6 = family == unix.AF_INET6
	for i := range packets {
		buf := packets[i].data[:maxQuery]
		m.rx.iovs[i].Base = &buf[0]
		m.rx.iovs[i].SetLen(len(buf))
		m.rearm(i)
	}
	m.turn = newTurn()
	m.rxFunc, m.txFunc = m.recvmmsg, m.sendmmsg
	return m, nil
}

// rearm gives the kernel back the lengths that it overwrites with each message.
func (m *mmsgIO) rearm(i int) {
	h := &m.rx.msgs[i].hdr
	h.Namelen = unix.SizeofSockaddrInet6
	h.Flags = 0
	if m.pktinfo {
		h.SetControllen(controlSpace)
	} else {
		h.Control = nil
		h.SetControllen(0)
	}
}

func (m *mmsgIO) receive(ps []packet, wait bool) (int, bool, error) {
	m.rxMax, m.rxWait, m.waited, m.rxN, m.rxErr = len(ps), wait, false, 0, nil
	if err := m.raw.Read(m.rxFunc); err != nil {
		m.udp.SetReadDeadline(time.Time{})
		return 0, m.waited, err
	}
	for i := range m.rxN {
		m.packet(&ps[i], i)
		m.rearm(i)
	}
	return m.rxN, m.waited, m.rxErr
}

// maxInterrupts is how often in a row a call that never blocks may be interrupted. More is a fault,
// and to try for ever would keep the processor from the collector.
const maxInterrupts = 100

// recvmmsg is called by the runtime with the descriptor held; false waits for the socket to become
// readable. The system calls never block, so they do without the runtime's bookkeeping for those
// that may: it would give the processor away whenever one takes longer than 20 us.
func (m *mmsgIO) recvmmsg(fd uintptr) bool {
	for interrupted := 0; ; {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&m.rx.msgs[0])), uintptr(m.rxMax), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			m.rxN = int(n)
			return true
		case unix.EAGAIN:
			if !m.rxWait {
				return true
			}
			m.waited = true
			return false
		default:
			if interrupted++; errno == unix.EINTR && interrupted < maxInterrupts {
				continue
			}
			m.rxErr = os.NewSyscallError("recvmmsg", errno)
			return true
		}
	}
}

// packet translates received message i.
func (m *mmsgIO) packet(p *packet, i int) {
	msg := &m.rx.msgs[i]
	p.data = p.data[:msg.len]
	p.long = msg.hdr.Flags&unix.MSG_TRUNC != 0
	name := &m.rx.names[i]
	if m.inet6 {
		a := netip.AddrFrom16(name.Addr).Unmap()
		if name.Scope_id != 0 {
			a = a.WithZone(zones.name(name.Scope_id))
		}
		p.peer.addr = netip.AddrPortFrom(a, port(&name.Port))
	} else {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		p.peer.addr = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), port(&sa.Port))
	}
	p.peer.local = netip.Addr{}
	if m.pktinfo {
		p.peer.local = localAddr(m.rx.control[i*controlSpace:][:msg.hdr.Controllen])
	}
}

// port reads or writes a port in network byte order, wherever the struct has it.
func port(p *uint16) uint16 {
	return binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(p))[:])
}

func setPort(p *uint16, n uint16) {
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(p))[:], n)
}

// localAddr finds the address that a datagram was sent to in its control messages.
func localAddr(control []byte) netip.Addr {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			break
		}
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// ipi_addr, what the header said, ip(7)
			return netip.AddrFrom4([4]byte(data[8:12]))
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			return netip.AddrFrom16([16]byte(data[:16]))
		}
		control = rest
	}
	return netip.Addr{}
}

func (m *mmsgIO) send(rs []*reply) error {
	for len(rs) > 0 {
		n := min(len(rs), len(m.tx.msgs))
		if m.groups.worthwhile(n) {
			m.groups.group(rs[:n])
		} else {
			m.groups.single(rs[:n])
		}
		m.fill()
		if err := m.raw.Write(m.txFunc); err != nil {
			m.count.sendError("closed", len(rs)-n+len(m.groups.sorted)-m.txDone)
			return err
		}
		// Long responses are the collector's now.
		clear(m.groups.sorted)
		clear(m.tx.iovs[:n])
		rs = rs[n:]
	}
	return nil
}

// sendmmsg is called by the runtime with the descriptor held; false waits for the socket to become writable.
func (m *mmsgIO) sendmmsg(fd uintptr) bool {
	for interrupted := 0; m.txOff < len(m.groups.parts); {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&m.tx.msgs[m.txOff])), uintptr(len(m.groups.parts)-m.txOff), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			interrupted = 0
			before := m.txDone
			for _, parts := range m.groups.parts[m.txOff : m.txOff+int(n)] {
				m.txDone += parts
			}
			m.txOff += int(n)
			m.count.sends.add(m.txDone - before)
			m.count.sent.Add(uint64(m.txDone - before))
		case unix.EAGAIN:
			m.count.waits.Add(1)
			return false
		default:
			if interrupted++; errno == unix.EINTR && interrupted < maxInterrupts {
				continue
			}
			// The first message is at fault: the kernel reports an error only when it has sent none.
			if m.groups.parts[m.txOff] > 1 {
				// Perhaps the way there does not take segments: what is left goes out one by one.
				m.groups.skip = skipRefused
				m.groups.single(m.groups.sorted[m.txDone:])
				m.fill()
				continue
			}
			m.count.sendError(unix.ErrnoName(errno), 1)
			m.txOff++
			m.txDone++
		}
	}
	return true
}

// fill makes the vector's messages from the groups.
func (m *mmsgIO) fill() {
	m.txOff, m.txDone = 0, 0
	rest := m.groups.sorted
	for k, parts := range m.groups.parts {
		iovs := m.tx.iovs[len(m.groups.sorted)-len(rest):]
		for i, r := range rest[:parts] {
			iovs[i].Base = unsafe.SliceData(r.buf)
			iovs[i].SetLen(len(r.buf))
		}
		h := &m.tx.msgs[k].hdr
		h.Iov = &iovs[0]
		h.SetIovlen(parts)
		m.address(k, rest[0])
		if parts > 1 {
			m.segment(k, len(rest[0].buf))
		}
		rest = rest[parts:]
	}
}

// segment has the kernel cut message k into datagrams of so many octets.
func (m *mmsgIO) segment(k, size int) {
	h := &m.tx.msgs[k].hdr
	used := int(h.Controllen)
	control := m.tx.control[k*m.tx.space+used:][:segmentSpace]
	cmsg := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	cmsg.Level, cmsg.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	cmsg.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(control[unix.CmsgLen(0):], uint16(size))
	h.SetControllen(used + segmentSpace)
}

// address fills in where message k goes to and comes from, which are r's.
func (m *mmsgIO) address(k int, r *reply) {
	h := &m.tx.msgs[k].hdr
	name := &m.tx.names[k]
	a := r.peer.addr.Addr()
	if m.inet6 {
		name.Family = unix.AF_INET6
		setPort(&name.Port, r.peer.addr.Port())
		name.Addr = a.As16()
		name.Scope_id = zones.index(a.Zone())
		h.Namelen = unix.SizeofSockaddrInet6
	} else {
		sa := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		sa.Family = unix.AF_INET
		setPort(&sa.Port, r.peer.addr.Port())
		sa.Addr = a.As4()
		h.Namelen = unix.SizeofSockaddrInet4
	}
	h.SetControllen(0)
	if !r.peer.local.IsValid() {
		return
	}
	control := m.tx.control[k*m.tx.space:][:controlSpace]
	cmsg := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	data := control[unix.CmsgLen(0):]
	if m.inet6 {
		cmsg.Level, cmsg.Type = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO
		cmsg.SetLen(unix.CmsgLen(unix.SizeofInet6Pktinfo))
		src := r.peer.local.As16()
		copy(data, src[:])
		clear(data[16:unix.SizeofInet6Pktinfo]) // no interface: routing decides, as with stock
		h.SetControllen(unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	} else {
		cmsg.Level, cmsg.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
		cmsg.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
		src := r.peer.local.As4()
		clear(data[:unix.SizeofInet4Pktinfo])
		copy(data[4:8], src[:]) // ipi_spec_dst
		h.SetControllen(unix.CmsgSpace(unix.SizeofInet4Pktinfo))
	}
}

func (m *mmsgIO) pause() { m.turn.pass() }

func (m *mmsgIO) interrupt() { m.udp.SetReadDeadline(time.Unix(1, 0)) }

// detach connects the socket to itself: a connected socket takes datagrams of its peer only, and the
// kernel leaves it out when it chooses among SO_REUSEPORT sockets.
func (m *mmsgIO) detach() {
	m.raw.Control(func(fd uintptr) {
		sa, err := unix.Getsockname(int(fd))
		if err != nil {
			return
		}
		var own []unix.Sockaddr
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			if sa.Addr == [4]byte{} {
				sa.Addr = [4]byte{127, 0, 0, 1}
			}
			own = append(own, sa)
		case *unix.SockaddrInet6:
			if sa.Addr == [16]byte{} {
				v4 := &unix.SockaddrInet6{Port: sa.Port, Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}
				sa.Addr = netip.IPv6Loopback().As16()
				own = append(own, sa, v4)
			} else {
				own = append(own, sa)
			}
		}
		for _, a := range own {
			if unix.Connect(int(fd), a) == nil {
				return
			}
		}
	})
}

func (m *mmsgIO) conn() *net.UDPConn { return m.udp }

func (m *mmsgIO) close() {
	m.udp.Close()
	m.turn.close()
}
