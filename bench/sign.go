package main

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"io"
	"slices"
	"time"

	"github.com/miekg/dns"
)

const rootKeyBits = 2048 // as the root's zone key has: the signatures make DO answers twice as long

// signZone reads a zone with origin "." and adds a DNSKEY, the NSEC chain and the signatures.
func signZone(zone io.Reader, bits int) ([]dns.RR, error) {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		return nil, err
	}
	const ttl = 86400
	dnskey := &dns.DNSKEY{
		Hdr:   dns.RR_Header{Name: ".", Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: ttl},
		Flags: dns.ZONE | dns.SEP, Protocol: 3, Algorithm: dns.RSASHA256,
	}
	dnskey.PublicKey = publicKey(&key.PublicKey)

	records := []dns.RR{dnskey}
	zp := dns.NewZoneParser(zone, ".", "")
	for rr, ok := zp.Next(); ok; rr, ok = zp.Next() {
		records = append(records, rr)
	}
	if err := zp.Err(); err != nil {
		return nil, err
	}

	sets := make(map[string]map[uint16][]dns.RR) // by owner and type
	for _, rr := range records {
		h := rr.Header()
		if sets[h.Name] == nil {
			sets[h.Name] = make(map[uint16][]dns.RR)
		}
		sets[h.Name][h.Rrtype] = append(sets[h.Name][h.Rrtype], rr)
	}
	var owners []string // those with authoritative data or a delegation, not glue
	for name, types := range sets {
		if types[dns.TypeNS] != nil {
			owners = append(owners, name)
		}
	}
	slices.Sort(owners) // names of one label each: this is the canonical order
	var signed [][]dns.RR
	for i, name := range owners {
		nsec := &dns.NSEC{
			Hdr:        dns.RR_Header{Name: name, Rrtype: dns.TypeNSEC, Class: dns.ClassINET, Ttl: ttl},
			NextDomain: owners[(i+1)%len(owners)], TypeBitMap: []uint16{dns.TypeRRSIG, dns.TypeNSEC},
		}
		records = append(records, nsec)
		signed = append(signed, []dns.RR{nsec})
		for t, set := range sets[name] {
			nsec.TypeBitMap = append(nsec.TypeBitMap, t)
			if name == "." || t == dns.TypeDS {
				signed = append(signed, set)
			}
		}
		slices.Sort(nsec.TypeBitMap)
	}
	signatures, err := sign(key, dnskey.KeyTag(), signed)
	return append(records, signatures...), err
}

func sign(key crypto.Signer, tag uint16, sets [][]dns.RR) (signatures []dns.RR, err error) {
	now := time.Now()
	for _, set := range sets {
		s := &dns.RRSIG{
			Hdr:       dns.RR_Header{Ttl: set[0].Header().Ttl},
			Algorithm: dns.RSASHA256, KeyTag: tag, SignerName: ".",
			Inception: uint32(now.Add(-time.Hour).Unix()), Expiration: uint32(now.AddDate(0, 0, 30).Unix()),
		}
		if err := s.Sign(key, set); err != nil {
			return nil, err
		}
		signatures = append(signatures, s)
	}
	return signatures, nil
}

// publicKey is the key as in a DNSKEY record, RFC 3110.
func publicKey(k *rsa.PublicKey) string {
	e := []byte{byte(k.E >> 16), byte(k.E >> 8), byte(k.E)}
	return base64.StdEncoding.EncodeToString(slices.Concat([]byte{byte(len(e))}, e, k.N.Bytes()))
}
