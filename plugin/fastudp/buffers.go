package fastudp

import (
	"fmt"
	"net"
	"sync"
)

// buffers are the sizes that the sockets of a listener shall have, in bytes as for setsockopt; 0 for
// write leaves the system's default.
type buffers struct{ read, write int }

func (o Options) buffers() buffers {
	b := buffers{read: o.ReadBuffer, write: o.WriteBuffer}
	if b.read == 0 {
		b.read = defaultReadBuffer
	}
	return b
}

func (b buffers) size(k bufferKind) int { return [...]int{b.read, b.write}[k] }

// set sets the sizes as far as the system lets us.
func (b buffers) set(c *net.UDPConn) error {
	if err := setBuffer(c, readBuffer, b.read); err != nil {
		return fmt.Errorf("read_buffer: %w", err)
	}
	if b.write == 0 {
		return nil
	}
	if err := setBuffer(c, writeBuffer, b.write); err != nil {
		return fmt.Errorf("write_buffer: %w", err)
	}
	return nil
}

// reset sets the sizes of a socket that another listener has used.
func (b buffers) reset(c *net.UDPConn) error {
	if b.write == 0 {
		if size, ok := defaultWriteBuffer(); ok {
			b.write = size
		}
	}
	return b.set(c)
}

// defaultWriteBuffer is what a fresh socket has.
var defaultWriteBuffer = sync.OnceValues(func() (int, bool) {
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return 0, false
	}
	defer p.Close()
	return bufferSize(p.(*net.UDPConn), writeBuffer)
})

// warnCapped says once for a listener what the system did not grant.
func (b buffers) warnCapped(addr string, c *net.UDPConn) {
	for _, k := range []struct {
		kind   bufferKind
		asked  int
		option string
	}{{readBuffer, b.read, "read_buffer"}, {writeBuffer, b.write, "write_buffer"}} {
		got, ok := bufferSize(c, k.kind)
		if ok && got < k.asked {
			log.Warningf("%s: %s is %d bytes instead of %d: raise the system's limit (%s) or run with CAP_NET_ADMIN", addr, k.option, got, k.asked, k.kind.limit())
		}
	}
}

type bufferKind int

const (
	readBuffer bufferKind = iota
	writeBuffer
)
