package same

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Stock and fastudp each have a network of two hosts, joined by a cable. Both networks have the same
// addresses, so a client says the same in both.
const (
	clientSecret = "NoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk="
	otherSecret  = "AoTCJU+DMqFWywaPyxSijrDEA/eC3nK0xi3AMEZuPVk="

	clientsCorefile = `
signed.example.org {
    FASTUDP
    BIND
    tsig {
        secret key.example.org. ` + clientSecret + `
        require all
    }
    template ANY ANY {
        answer "{{ .Name }} 300 IN TXT signed"
    }
}
. {
    FASTUDP
    BIND
    template IN TXT client.example.org {
        answer "{{ .Name }} 300 IN TXT {{ .Remote }}"
    }
    file ZONE example.org
}
`
	clientsZone = `
$ORIGIN example.org.
@ 300 IN SOA ns host 1 2 3 4 5
@ 300 IN NS ns
ns 300 IN A 192.0.2.1
www 300 IN A 192.0.2.77
www 300 IN AAAA 2001:db8::77
`
)

// Of two serverAddrs of a kind the kernel prefers one for an answer; the other takes a server that says which.
var (
	serverAddrs = []string{"192.0.2.1/24", "192.0.2.2/24", "2001:db8::1/64", "2001:db8::2/64", "fe80::1/64", "fe80::2/64"}
	clientAddrs = []string{"192.0.2.10/24", "2001:db8::10/64", "fe80::10/64"}
)

// TestClients has the clients that people use ask both over a network, by each of the server's
// addresses: they must print the same. All but drill take no answer from elsewhere.
func TestClients(t *testing.T) {
	both := newNetworks(t)
	zone := clientsZone
	for i := range 60 { // more than 512 bytes
		zone += fmt.Sprintf("many 300 IN A 192.0.2.%d\n", 100+i)
	}
	for i := range 14 { // more than a frame
		zone += fmt.Sprintf("big 300 IN TXT %d-%s\n", i, strings.Repeat("x", 200))
	}
	corefile := strings.ReplaceAll(clientsCorefile, "ZONE", tempFile(t, "db.example.org", zone))
	for _, bind := range []string{"", "bind 0.0.0.0", "bind veth"} {
		t.Run(cmp.Or(bind, "no bind"), func(t *testing.T) {
			for v, n := range both {
				n.serve(t, strings.ReplaceAll(corefile, "BIND", bind), v)
			}
			for _, a := range serverAddrs {
				addr := netip.MustParsePrefix(a).Addr()
				t.Run(addr.String(), func(t *testing.T) {
					t.Parallel() // for the time that failures take
					askByAddress(t, both, addr)
				})
			}
			t.Run("tsig", func(t *testing.T) {
				t.Parallel()
				askSigned(t, both)
			})
		})
	}
}

// askByAddress has every client ask addr.
func askByAddress(t *testing.T, both networks, addr netip.Addr) {
	at, client := addr, ""
	for _, c := range clientAddrs {
		a := netip.MustParsePrefix(c).Addr()
		if a.Is4() == addr.Is4() && a.IsLinkLocalUnicast() == addr.IsLinkLocalUnicast() {
			client = a.String()
		}
	}
	if addr.IsLinkLocalUnicast() {
		at = addr.WithZone("veth")
		client += "%veth"
	}
	t.Run("dig", func(t *testing.T) {
		out := both.ask(t, "dig +time=2 +tries=1 @"+at.String()+
			" www.example.org A www.example.org AAAA nx.example.org A client.example.org TXT"+
			" big.example.org TXT +bufsize=4096 +ignore"+ // in fragments
			" many.example.org A +noedns"+ // again over TCP
			" www.example.org TXT +tcp")
		wantText(t, out, "\t192.0.2.77\n", "\t2001:db8::77\n", "status: NXDOMAIN", "\t\""+client+"\"\n", "\t\"13-xxx",
			"Truncated, retrying in TCP mode", "\t192.0.2.159\n")
		from := regexp.MustCompile(`;; SERVER: ` + regexp.QuoteMeta(addr.String()) + `(?:%\d+)?#53\(.*\) \((UDP|TCP)\)`)
		wantFrom(t, out, from, "UDP UDP UDP UDP UDP TCP TCP")
	})
	from := regexp.MustCompile(`;; From ` + regexp.QuoteMeta(addr.String()) + `@53\((UDP|TCP)\)`)
	t.Run("kdig", func(t *testing.T) {
		out := both.ask(t, "kdig +timeout=2 +retry=0 @"+at.String()+
			" www.example.org A www.example.org AAAA nx.example.org A client.example.org TXT"+
			" big.example.org TXT +bufsize=4096 +ignore"+
			" many.example.org A"+
			" www.example.org TXT +tcp")
		wantText(t, out, "\t192.0.2.77\n", "\t2001:db8::77\n", "status: NXDOMAIN", "\t\""+client+"\"\n", "\t\"13-xxx", "\t192.0.2.159\n")
		wantFrom(t, out, from, "UDP UDP UDP UDP UDP TCP TCP")
	})
	if at.Zone() == "" { // drill knows no zones
		t.Run("drill", func(t *testing.T) {
			for _, question := range []string{"www.example.org A", "-t www.example.org A", "-b 4096 client.example.org TXT"} {
				want := "\t192.0.2.77\n"
				if strings.Contains(question, "TXT") {
					want = "\t\"" + client + "\"\n"
				}
				wantText(t, both.ask(t, "drill @"+at.String()+" "+question), want)
			}
		})
	}
	t.Run("glibc", func(t *testing.T) {
		conf := tempFile(t, "resolv.conf", "nameserver "+at.String()+"\noptions timeout:2 attempts:1\n")
		// The namespace of the mount ends with the command.
		out := both.ask(t, "sh -c", `mount --bind "$0" /etc/resolv.conf && exec getent -s hosts:dns ahosts "$@"`, conf,
			"www.example.org", "many.example.org", "nx.example.org")
		wantText(t, out, "192.0.2.77 ", "2001:db8::77 ", "192.0.2.159 ", "exit status 2")
	})
}

// askSigned asks questions that are signed. An answer that does not verify makes the clients say so.
func askSigned(t *testing.T, both networks) {
	for _, at := range []string{"192.0.2.2", "fe80::1%veth"} {
		for client, c := range map[string]struct{ options, complaint string }{
			"dig":  {"+time=2 +tries=1", "could not be validated"},
			"kdig": {"+timeout=2 +retry=0", "failed to verify TSIG"},
		} {
			t.Run(client+" "+at, func(t *testing.T) {
				line := client + " " + c.options + " @" + at + " signed.example.org TXT"
				signed := both.ask(t, line+" -y hmac-sha256:key.example.org:"+clientSecret)
				wantText(t, signed, "\t\"signed\"\n", "TSIG\thmac-sha256. TIME 300 32 MAC ID NOERROR", "status: NOERROR", "(UDP)")
				if strings.Contains(signed, c.complaint) {
					t.Errorf("the answer does not verify:\n%s", signed)
				}
				wantText(t, both.ask(t, line+" +tcp -y hmac-sha256:key.example.org:"+clientSecret), "MAC ID NOERROR", "(TCP)")
				wantText(t, both.ask(t, line+" -y hmac-sha256:key.example.org:"+otherSecret), "BADSIG", c.complaint)
				wantText(t, both.ask(t, line), "REFUSED")
			})
		}
	}
}

func wantText(t *testing.T, out string, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if !strings.Contains(out, s) {
			t.Errorf("%q is not in\n%s", s, out)
		}
	}
}

// wantFrom wants the answers to have come from where pattern says, by these transports.
func wantFrom(t *testing.T, out string, pattern *regexp.Regexp, transports string) {
	t.Helper()
	var got []string
	for _, m := range pattern.FindAllStringSubmatch(out, -1) {
		got = append(got, m[1])
	}
	if strings.Join(got, " ") != transports {
		t.Errorf("answers by %s over %v, want %s:\n%s", pattern, got, transports, out)
	}
}

// network is two hosts, each a network namespace.
type network struct{ server, client string }

type networks [2]network

// newNetworks lays both networks until the test ends. Without what that takes the test is skipped,
// but not where all of it has been installed.
func newNetworks(t *testing.T) networks {
	t.Helper()
	lack := t.Skipf
	if os.Getenv("CI") == "true" {
		lack = t.Fatalf
	}
	if os.Geteuid() != 0 {
		lack("network namespaces take root")
	}
	for _, program := range []string{"ip", "mount", "dig", "kdig", "drill", "getent"} {
		if _, err := exec.LookPath(program); err != nil {
			lack("%v", err)
		}
	}
	if _, err := os.Stat("/etc/resolv.conf"); err != nil {
		lack("glibc's resolver cannot be told whom to ask: %v", err)
	}
	var both networks
	for v := range both {
		n := network{fmt.Sprintf("fastudp-%d-%s-server", os.Getpid(), variants[v]), fmt.Sprintf("fastudp-%d-%s-client", os.Getpid(), variants[v])}
		both[v] = n
		ip := func(line string) {
			t.Helper()
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				lack("ip %s: %v: %s", line, err, out)
			}
		}
		hosts := []struct {
			name  string
			addrs []string
		}{{n.server, serverAddrs}, {n.client, clientAddrs}}
		for _, h := range hosts {
			ip("netns add " + h.name)
			t.Cleanup(func() {
				if out, err := exec.Command("ip", "netns", "del", h.name).CombinedOutput(); err != nil {
					t.Errorf("remove %s: %v: %s", h.name, err, out)
				}
			})
		}
		ip("-n " + n.server + " link add veth type veth peer name veth netns " + n.client)
		for _, h := range hosts {
			ip("-n " + h.name + " link set veth addrgenmode none")
			ip("-n " + h.name + " link set lo up")
			ip("-n " + h.name + " link set veth up")
			for _, a := range h.addrs {
				nodad := ""
				if strings.Contains(a, ":") {
					nodad = " nodad"
				}
				ip("-n " + h.name + " addr add " + a + " dev veth" + nodad)
			}
		}
	}
	return both
}

// serve runs variant v of corefile at the server until the test ends. It returns when it serves.
func (n network) serve(t *testing.T, corefile string, v int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("ip", "netns", "exec", n.server, exe) // ip becomes exe
	cmd.Env = append(os.Environ(), childCorefile+"="+write(corefile, v, 53))
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	t.Cleanup(func() {
		stdin.Close()
		kill.Reset(15 * time.Second)
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", variants[v], err, &stderr)
		}
		if is := strings.Contains(stderr.String(), "plugin/fastudp: dns://"); is != (v == fast) {
			t.Errorf("%s: served by fastudp: %v\n%s", variants[v], is, &stderr)
		}
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "serving\n" {
		t.Fatalf("%s: %q, %v", variants[v], line, err)
	}
	kill.Stop()
}

// varying is what differs from answer to answer, and what stands for it.
var varying = []struct {
	pattern *regexp.Regexp
	to      string
}{
	{regexp.MustCompile(`\bid: \d+`), "id: ID"},
	{regexp.MustCompile(`(?m)^(;; (Query time:|WHEN:|Time)) .*`), "$1"},
	{regexp.MustCompile(` in [\d.]+ ms`), ""},
	{regexp.MustCompile(`(TSIG\thmac-sha256\.) \d+ (300 \d+) (?:\S{44} )?\d+ `), "$1 TIME $2 MAC ID "},
}

// ask runs a command, the words of line and args, at both clients and returns what it prints, which
// must be the same but for what varies with every question.
func (both networks) ask(t *testing.T, line string, args ...string) string {
	t.Helper()
	var outs [2]string
	var wg sync.WaitGroup
	for v, n := range both {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, "ip", slices.Concat([]string{"netns", "exec", n.client}, strings.Fields(line), args)...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				out = fmt.Appendf(out, "%v\n", err)
			}
			outs[v] = string(out)
			for _, r := range varying {
				outs[v] = r.pattern.ReplaceAllString(outs[v], r.to)
			}
		})
	}
	wg.Wait()
	if outs[0] != outs[1] {
		t.Fatalf("%s: the answers differ\nstock:\n%s\nfastudp:\n%s", line, outs[0], outs[1])
	}
	return outs[fast]
}
