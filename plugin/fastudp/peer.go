package fastudp

import (
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// peer says who sent a datagram and to which of our addresses, all that an answer needs.
type peer struct {
	addr  netip.AddrPort // the client; IPv4-mapped addresses as IPv4, link-local ones with their zone
	local netip.Addr     // the address that was asked, known on wildcard binds only
}

// zones translates interface indices to names and back for link-local clients. Asking the system
// takes a netlink dump, so the answers are kept as long as package net keeps its own.
var zones zoneCache

const zoneLifetime = time.Minute

type zoneCache struct {
	mu     sync.Mutex
	asked  time.Time
	byName map[string]uint32
	byIdx  map[uint32]string
}

func (z *zoneCache) refresh() {
	if z.byIdx != nil && time.Since(z.asked) < zoneLifetime {
		return
	}
	z.asked = time.Now()
	z.byName, z.byIdx = make(map[string]uint32), make(map[uint32]string)
	ifs, err := net.Interfaces()
	if err != nil {
		return // indices serve as names until the next try
	}
	for _, i := range ifs {
		z.byName[i.Name], z.byIdx[uint32(i.Index)] = uint32(i.Index), i.Name
	}
}

// name is the zone of interface index idx, "" for 0.
func (z *zoneCache) name(idx uint32) string {
	if idx == 0 {
		return ""
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.refresh()
	if n, ok := z.byIdx[idx]; ok {
		return n
	}
	return strconv.FormatUint(uint64(idx), 10)
}

// index is the interface index of zone name, 0 when there is none.
func (z *zoneCache) index(name string) uint32 {
	if name == "" {
		return 0
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	z.refresh()
	if i, ok := z.byName[name]; ok {
		return i
	}
	i, _ := strconv.ParseUint(name, 10, 32)
	return uint32(i)
}
