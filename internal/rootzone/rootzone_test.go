package rootzone

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/coredns/plugin/file"
	"github.com/coredns/coredns/plugin/test"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

const zoneFile = "../../zones/root-like.zone"

func generate(t *testing.T, seed int64) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Generate(&b, seed); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFileIsCurrent(t *testing.T) {
	got, err := os.ReadFile(zoneFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, generate(t, Seed)) {
		t.Errorf("%s is not what Generate writes: run go generate ./internal/rootzone", zoneFile)
	}
	if len(got) >= 1e6 {
		t.Errorf("%s has %d bytes, want less than a megabyte", zoneFile, len(got))
	}
}

func TestSeedDecides(t *testing.T) {
	if !bytes.Equal(generate(t, 7), generate(t, 7)) {
		t.Error("one seed gave two zones")
	}
	if bytes.Equal(generate(t, 7), generate(t, 8)) {
		t.Error("two seeds gave one zone")
	}
}

type brokenWriter struct{ room int }

var errBroken = errors.New("no room")

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

func TestGenerateTellsWriteErrors(t *testing.T) {
	for _, room := range []int{0, 100000} {
		if err := Generate(&brokenWriter{room}, Seed); !errors.Is(err, errBroken) {
			t.Errorf("with room for %d bytes: got %v, want %v", room, err, errBroken)
		}
	}
}

// TestShape counts what makes the zone like the root, for the seed of the file and others.
func TestShape(t *testing.T) {
	documentation := []netip.Prefix{
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"),
		netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32"),
	}
	name := regexp.MustCompile(`^([a-z]{2,}|xn--[a-z0-9]+)\.$`)

	for _, seed := range []int64{Seed, 0, -3, 12345} {
		soa, seen := 0, map[string]bool{}
		ns, ds := map[string][]string{}, map[string]int{}
		addresses := map[string]map[uint16]int{}
		zp := dns.NewZoneParser(bytes.NewReader(generate(t, seed)), ".", "")
		for rr, ok := zp.Next(); ok; rr, ok = zp.Next() {
			if seen[rr.String()] {
				t.Errorf("seed %d: twice in the zone: %s", seed, rr)
			}
			seen[rr.String()] = true
			owner := rr.Header().Name
			var addr netip.Addr
			switch rr := rr.(type) {
			case *dns.SOA:
				soa++
				continue
			case *dns.NS:
				ns[owner] = append(ns[owner], rr.Ns)
				continue
			case *dns.DS:
				ds[owner]++
				continue
			case *dns.A:
				addr, _ = netip.AddrFromSlice(rr.A.To4())
			case *dns.AAAA:
				addr, _ = netip.AddrFromSlice(rr.AAAA)
			default:
				t.Errorf("seed %d: unexpected record %s", seed, rr)
			}
			if addresses[owner] == nil {
				addresses[owner] = map[uint16]int{}
			}
			addresses[owner][rr.Header().Rrtype]++
			if !slices.ContainsFunc(documentation, func(p netip.Prefix) bool { return p.Contains(addr) }) {
				t.Errorf("seed %d: %s is no documentation address", seed, addr)
			}
		}
		if err := zp.Err(); err != nil {
			t.Fatal(err)
		}

		if soa != 1 {
			t.Errorf("seed %d: %d SOA records, want 1", seed, soa)
		}
		if len(ns["."]) != 13 {
			t.Errorf("seed %d: %d NS records at the apex, want 13", seed, len(ns["."]))
		}
		if len(ns)-1 != 1450 {
			t.Errorf("seed %d: %d delegations, want 1450", seed, len(ns)-1)
		}
		two, international, allOwn, allShared, mixed := 0, 0, 0, 0, 0
		used := map[string]bool{}
		for owner, servers := range ns {
			own := 0
			for _, host := range servers {
				used[host] = true
				if dns.IsSubDomain(owner, host) {
					own++
				}
				// All servers are under the root, so all need glue.
				if addresses[host][dns.TypeA] != 1 || addresses[host][dns.TypeAAAA] != 1 {
					t.Errorf("seed %d: server %s of %s has no glue, or too much", seed, host, owner)
				}
				if tld := host[dns.Split(host)[dns.CountLabel(host)-1]:]; ns[tld] == nil {
					t.Errorf("seed %d: server %s of %s is under no delegation", seed, host, owner)
				}
			}
			if owner == "." {
				continue
			}
			if len(servers) < 4 || len(servers) > 8 {
				t.Errorf("seed %d: %s has %d servers, want 4 to 8", seed, owner, len(servers))
			}
			switch own {
			case 0:
				allShared++
			case len(servers):
				allOwn++
			default:
				mixed++
			}
			if !name.MatchString(owner) {
				t.Errorf("seed %d: odd name %s", seed, owner)
			}
			if len(owner) == len("xx.") {
				two++
			}
			if strings.HasPrefix(owner, "xn--") {
				international++
			}
		}
		if two != 250 || international != 60 {
			t.Errorf("seed %d: %d names of two letters and %d internationalised ones, want 250 and 60", seed, two, international)
		}
		if allOwn < 400 || allShared < 400 || mixed < 200 {
			t.Errorf("seed %d: %d delegations have only servers of their own, %d none, %d some; want more of each kind", seed, allOwn, allShared, mixed)
		}
		for host := range addresses {
			if !used[host] {
				t.Errorf("seed %d: address of %s, which serves nothing", seed, host)
			}
		}
		if len(ds) < 1450*90/100 || len(ds) > 1450*94/100 {
			t.Errorf("seed %d: %d delegations have DS records, want about 92 %% of 1450", seed, len(ds))
		}
		for owner, n := range ds {
			if n > 2 || ns[owner] == nil {
				t.Errorf("seed %d: %d DS records at %s", seed, n, owner)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// TestFilePlugin has CoreDNS answer from the zone.
func TestFilePlugin(t *testing.T) {
	zone, err := file.Parse(bytes.NewReader(generate(t, Seed)), ".", "root-like.zone", 0)
	if err != nil {
		t.Fatal(err)
	}
	lookup := func(qname string, qtype uint16) (answer, ns, extra []dns.RR, result file.Result) {
		m := new(dns.Msg).SetQuestion(qname, qtype)
		return zone.Lookup(t.Context(), request.Request{Req: m, W: &test.ResponseWriter{}}, qname)
	}

	answer, _, extra, result := lookup(".", dns.TypeNS)
	if result != file.Success || len(answer) != 13 || len(extra) != 26 {
		t.Errorf("NS of the apex: result %v, %d answers, %d addresses; want success, 13, 26", result, len(answer), len(extra))
	}
	_, ns, extra, result := lookup("www.rootlike.", dns.TypeA)
	if result != file.Delegation || len(ns) < 8 || len(extra) != 2*8 {
		t.Errorf("name below rootlike.: result %v, %d NS and DS, %d addresses; want a delegation to eight servers with glue", result, len(ns), len(extra))
	}
	if _, _, _, result = lookup("test.", dns.TypeA); result != file.NameError {
		t.Errorf("undelegated name: result %v, want a name error", result)
	}
}

func TestQuestions(t *testing.T) {
	const zone = `$TTL 60
. SOA a.b. c.b. 1 2 3 4 5
. NS a.b.
. NSEC b. NS SOA NSEC
. RRSIG SOA 8 0 60 20300101000000 20200101000000 1 . AAAA
. ZONEMD 1 1 1 f1ca0ccd91bd5573d9f431c00ee0101b2545c97602be0a97
B. NS a.b.
b. NS c.b.
a.b. AAAA 2001:db8::1
a.b. A 192.0.2.1
a.b. A 192.0.2.2
`
	got, err := Questions(strings.NewReader(zone))
	if err != nil {
		t.Fatal(err)
	}
	want := []Question{
		{".", dns.TypeNS}, {".", dns.TypeSOA}, {"a.b.", dns.TypeA}, {"a.b.", dns.TypeAAAA}, {"b.", dns.TypeNS},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}

	if _, err := Questions(strings.NewReader("a. 60 A 192.0.2.1\nb. 60 A nonsense\n")); err == nil {
		t.Error("a broken zone gave no error")
	}
}
