package main

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/miekg/dns"
)

// corpus is hostile packets, the same for the same seed.
func corpus(seed uint64) [][]byte {
	rnd := rand.New(rand.NewPCG(seed, seed))
	var all [][]byte
	add := func(b []byte) { all = append(all, append([]byte(nil), b...)) }

	// A message with EDNS, cut at every length and with every byte of its header changed.
	m := new(dns.Msg).SetQuestion("a.b.test.", dns.TypeA)
	m.SetEdns0(4096, true)
	good := pack(m)
	for n := range good {
		add(good[:n])
	}
	for i := 2; i < 12; i++ {
		for range 8 {
			b := append([]byte(nil), good...)
			b[i] ^= byte(1 + rnd.IntN(255))
			add(b)
		}
	}
	// Every opcode, as query and as response, bare and with a question.
	for op := range 16 {
		for _, qr := range []byte{0, 0x80} {
			b := append([]byte(nil), good...)
			b[2] = qr | byte(op)<<3
			add(b)
			add(b[:12])
		}
	}
	// Wrong counts.
	for i := 4; i < 12; i += 2 {
		for _, n := range []uint16{0, 1, 2, 255, 65535} {
			b := append([]byte(nil), good...)
			binary.BigEndian.PutUint16(b[i:], n)
			add(b)
		}
	}
	// Names: pointers to themselves, to each other, forward, beyond the end; labels that are too long or reserved.
	header := []byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, name := range [][]byte{
		{0xc0, 12}, {0xc0, 14, 0xc0, 12}, {0xc0, 40}, {0xff, 0xff}, {1, 'a', 0xc0, 12}, {63}, {0x40, 'a'}, {0x80}, {0xc0}, {0xc0, 0},
	} {
		add(append(append(append([]byte(nil), header...), name...), 0, 1, 0, 1))
	}
	var long []byte
	for range 200 {
		long = append(long, 1, 'x')
	}
	add(append(append(append([]byte(nil), header...), long...), 0, 0, 1, 0, 1))
	// NOTIFY, UPDATE, TSIG of nobody and TSIG garbage.
	add(pack(new(dns.Msg).SetNotify("test.")))
	up := new(dns.Msg).SetUpdate("test.")
	up.Insert([]dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: "x.test.", Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 1}, Txt: []string{"x"}}})
	add(pack(up))
	signed := new(dns.Msg).SetQuestion("a.test.", dns.TypeA)
	signed.SetTsig("nobody.", dns.HmacSHA256, 300, 1)
	t := signed.Extra[0].(*dns.TSIG)
	t.OrigId, t.MAC, t.MACSize = 0, "00ff00ff", 4
	tsig := pack(signed)
	add(tsig)
	for range 60 {
		b := append([]byte(nil), tsig...)
		for range 1 + rnd.IntN(4) {
			b[12+rnd.IntN(len(b)-12)] = byte(rnd.Uint32())
		}
		add(b)
	}
	// Long ones, and noise with and without a plausible header.
	for _, n := range []int{512, 513, 4095, 4096, 4097, 9000} {
		b := append([]byte(nil), good...)
		for len(b) < n {
			b = append(b, byte(rnd.Uint32()))
		}
		add(b)
	}
	for i := range 300 {
		b := make([]byte, 1+rnd.IntN(600))
		for j := range b {
			b[j] = byte(rnd.Uint32())
		}
		if i%2 == 0 {
			copy(b, header)
		}
		add(b)
	}
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func pack(m *dns.Msg) []byte {
	m.Id = 0 // it was random
	b, err := m.Pack()
	if err != nil {
		panic(err) // the messages above are constants
	}
	return b
}
