package main

import (
	"encoding/binary"
	"net"
	"time"

	"golang.org/x/net/ipv4"
)

const (
	upstreamDelay = 20 * time.Millisecond
	upstreamBatch = 256
	missPrefix    = 'm' // names that start with it are soon to be asked for again
)

// upstream answers each question with an address after upstreamDelay. The delay is the same for all,
// so what it owes is a queue in order of time.
func upstream(addr string) error {
	p, err := net.ListenPacket("udp4", addr)
	if err != nil {
		return err
	}
	p.(*net.UDPConn).SetReadBuffer(4 << 20)
	conn := ipv4.NewPacketConn(p)
	type batch struct {
		due  time.Time
		msgs []ipv4.Message
	}
	queue := make(chan batch, 1<<14)
	go func() {
		for b := range queue {
			time.Sleep(time.Until(b.due))
			for len(b.msgs) > 0 {
				n, err := conn.WriteBatch(b.msgs, 0)
				if err != nil {
					n = 1 // skip the one that fails
				}
				b.msgs = b.msgs[n:]
			}
		}
	}()
	in := make([]ipv4.Message, upstreamBatch)
	for i := range in {
		in[i].Buffers = [][]byte{make([]byte, 1500)}
	}
	for {
		n, err := conn.ReadBatch(in, 0)
		if err != nil {
			return err
		}
		b := batch{due: time.Now().Add(upstreamDelay)}
		for _, m := range in[:n] {
			if a := answerTo(m.Buffers[0][:m.N]); a != nil {
				b.msgs = append(b.msgs, ipv4.Message{Buffers: [][]byte{a}, Addr: m.Addr})
			}
		}
		select {
		case queue <- b:
		default: // more than a queue of this length is hopeless
		}
	}
}

// answerTo makes the response to a query with one question, nil for anything else: an A record that
// lives an hour, or a second if the name is meant to miss the cache.
func answerTo(query []byte) []byte {
	const header, fixed = 12, 4
	if len(query) < header || query[2]&0x80 != 0 || binary.BigEndian.Uint16(query[4:]) != 1 {
		return nil
	}
	end := header
	for end < len(query) && query[end] != 0 {
		end += 1 + int(query[end])
	}
	if end += 1 + fixed; end > len(query) {
		return nil
	}
	ttl := uint32(3600)
	if query[header+1] == missPrefix {
		ttl = 1
	}
	a := append(make([]byte, 0, end+16), query[:end]...)
	a[2], a[3] = 0x80|query[2]&0x01, 0x80
	copy(a[6:header], []byte{0, 1, 0, 0, 0, 0})
	a = append(a, 0xc0, header, 0, 1, 0, 1)
	a = binary.BigEndian.AppendUint32(a, ttl)
	return append(a, 0, 4, 192, 0, 2, 1)
}
