// Package same compares the answers of fastudp's listener with those of the stock one.
package same

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/metadata"
	_ "github.com/fastudp/fastudp"
	"github.com/fastudp/fastudp/internal/directive"

	// Only these, not core/plugin: instrumenting every plugin makes the fuzz binary slow to build.
	_ "github.com/coredns/coredns/plugin/acl"
	_ "github.com/coredns/coredns/plugin/any"
	_ "github.com/coredns/coredns/plugin/autopath"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/bufsize"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/cancel"
	_ "github.com/coredns/coredns/plugin/chaos"
	_ "github.com/coredns/coredns/plugin/debug"
	_ "github.com/coredns/coredns/plugin/dns64"
	_ "github.com/coredns/coredns/plugin/dnstap"
	_ "github.com/coredns/coredns/plugin/dynupdate"
	_ "github.com/coredns/coredns/plugin/erratic"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/header"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/local"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/minimal"
	_ "github.com/coredns/coredns/plugin/multisocket"
	_ "github.com/coredns/coredns/plugin/nsid"
	_ "github.com/coredns/coredns/plugin/proxyproto"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/shed"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/trace"
	_ "github.com/coredns/coredns/plugin/transfer"
	_ "github.com/coredns/coredns/plugin/tsig"
	_ "github.com/coredns/coredns/plugin/view"
	_ "github.com/coredns/coredns/plugin/whoami"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
)

func init() {
	directive.Insert("multisocket", "fastudp")
	directive.Insert("erratic", "handler")
	plugin.Register("handler", setupHandler)
	caddy.Quiet, dnsserver.Quiet = true, true
}

const childCorefile = "FASTUDP_SAME_COREFILE"

func TestMain(m *testing.M) {
	if corefile := os.Getenv(childCorefile); corefile != "" {
		os.Exit(childMain(corefile))
	}
	log.SetOutput(io.Discard)
	// Goroutines make coverage vary, so that inputs seem interesting and minimizing them never succeeds.
	flag.Parse()
	flag.Set("test.fuzzminimizetime", "10x")
	if flag.Lookup("test.fuzz").Value.String() == "" {
		flag.Set("test.parallel", "8") // the tests wait more than they work
	}
	os.Exit(m.Run())
}

// handlers are what the directive "handler NAME" calls.
var handlers sync.Map // string to func(ctx, w, r) (int, error)

type handlerFunc = func(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error)

type handlerPlugin string

func (h handlerPlugin) Name() string { return "handler" }

func (h handlerPlugin) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	f, ok := handlers.Load(string(h))
	if !ok {
		return dns.RcodeNotImplemented, nil
	}
	return f.(handlerFunc)(ctx, w, r)
}

func setupHandler(c *caddy.Controller) error {
	c.Next()
	name := c.RemainingArgs()[0]
	dnsserver.GetConfig(c).AddPlugin(func(plugin.Handler) plugin.Handler { return handlerPlugin(name) })
	return nil
}

// handle has "handler NAME" call f until the test ends.
func handle(t testing.TB, name string, f handlerFunc) {
	handlers.Store(name, f)
	t.Cleanup(func() { handlers.Delete(name) })
}

// rawWriter is the listener's own writer under what CoreDNS wraps around it.
func rawWriter(w dns.ResponseWriter) dns.ResponseWriter {
	for {
		f := reflect.Indirect(reflect.ValueOf(w)).FieldByName("ResponseWriter")
		if !f.IsValid() {
			return w
		}
		w = f.Interface().(dns.ResponseWriter)
	}
}

// instance is one CoreDNS.
type instance struct {
	*caddy.Instance
	port int
}

func (i *instance) addr(host string) string { return net.JoinHostPort(host, fmt.Sprint(i.port)) }

// loopback is where i hears an IPv4 client on this host.
func (i *instance) loopback() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(i.port))
}

// variants are named in the order in which results are kept.
var variants = [2]string{"stock", "fastudp"}

const fast = 1

// write makes the Corefile of variant v: a line FASTUDP becomes the directive or nothing, PORT a port.
func write(corefile string, v, port int) string {
	directive := ""
	if v == fast {
		directive = "fastudp 2"
	}
	return strings.NewReplacer("FASTUDP", directive, "PORT", fmt.Sprint(port)).Replace(corefile)
}

func input(corefile string) caddy.CaddyfileInput {
	return caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"}
}

// oneAtATime starts and stops: caddy changes its list of instances while others read it.
var oneAtATime sync.Mutex

// startVariant starts variant v of corefile on a port of its own, until the test ends.
func startVariant(t testing.TB, corefile string, v int) *instance {
	t.Helper()
	i := startForGood(t, corefile, v)
	t.Cleanup(i.stop)
	return i
}

// startForGood starts an instance that nobody stops.
func startForGood(t testing.TB, corefile string, v int) *instance {
	t.Helper()
	if !strings.Contains(corefile, "FASTUDP") {
		t.Fatal("the Corefile has no FASTUDP: both variants would be stock")
	}
	port := freePort(t)
	corefile = strings.ReplaceAll(corefile, "METRICS", fmt.Sprint(freePort(t)))
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	inst, err := caddy.Start(input(write(corefile, v, port)))
	if err != nil {
		t.Fatalf("start %s: %v", variants[v], err)
	}
	return &instance{inst, port}
}

// startPair starts both variants.
func startPair(t testing.TB, corefile string) [2]*instance {
	t.Helper()
	return [2]*instance{startVariant(t, corefile, 0), startVariant(t, corefile, fast)}
}

// stop stops i as a signal does, unless it has been.
func (i *instance) stop() {
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	if slices.Contains(caddy.Instances(), i.Instance) {
		i.ShutdownCallbacks()
		i.Stop()
	}
}

// usedPorts are never used again: metrics are named by port and live as long as the process.
var usedPorts sync.Map

// freePort is a port free for UDP and TCP on all addresses. It is none that the system gives to clients
// or to the other processes that fuzz at the same time.
func freePort(t testing.TB) int {
	t.Helper()
	for range 200 {
		port := 10000 + rand.IntN(22000)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			continue
		}
		p, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		l.Close()
		if err != nil {
			continue
		}
		p.Close()
		if _, used := usedPorts.LoadOrStore(port, true); !used {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// tempFile writes a file and returns its path.
func tempFile(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// client asks both variants from one socket, so that they see the same remote address.
type client struct {
	conn *net.UDPConn
	to   [2]netip.AddrPort
	id   uint16
	buf  []byte
	late func(v int, answer []byte) // gets answers that no question waits for
}

func newClient(t testing.TB, p [2]*instance) *client {
	t.Helper()
	return newClientTo(t, p[0].loopback(), p[1].loopback())
}

func newClientTo(t testing.TB, stock, fast netip.AddrPort) *client {
	t.Helper()
	local := net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}
	if stock.Addr().Is6() {
		local.IP = net.IPv6loopback
	}
	conn, err := net.ListenUDP("udp", &local)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetReadBuffer(4 << 20)
	return &client{conn: conn, to: [2]netip.AddrPort{stock, fast}, buf: make([]byte, 65536)}
}

// nextID is an ID that no recent message had.
func (c *client) nextID() uint16 {
	c.id++
	return c.id
}

// withID is msg under another ID, if it is long enough to have one.
func withID(msg []byte, id uint16) []byte {
	msg = slices.Clone(msg)
	if len(msg) >= 2 {
		msg[0], msg[1] = byte(id>>8), byte(id)
	}
	return msg
}

// send sends msg to both.
func (c *client) send(msg []byte) error {
	for _, to := range c.to {
		if _, err := c.conn.WriteToUDPAddrPort(msg, to); err != nil {
			return err
		}
	}
	return nil
}

// receive returns the next answer until end.
func (c *client) receive(end time.Time) (v int, answer []byte, err error) {
	c.conn.SetReadDeadline(end)
	for {
		n, from, err := c.conn.ReadFromUDPAddrPort(c.buf)
		if err != nil {
			return 0, nil, err
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if v := slices.Index(c.to[:], from); v >= 0 {
			return v, c.buf[:n], nil
		}
	}
}

func answerID(b []byte) (uint16, bool) {
	if len(b) < 2 {
		return 0, false
	}
	return uint16(b[0])<<8 | uint16(b[1]), true
}

// ask sends every msg to both under fresh IDs, all at once, and returns the answers of each, nil for
// none. It returns when all have been answered or no answer has come for as long as idle.
func (c *client) ask(t testing.TB, idle time.Duration, msgs ...[]byte) [][2][]byte {
	t.Helper()
	answers := make([][2][]byte, len(msgs))
	waiting := make(map[uint16]int)
	for i, m := range msgs {
		id := c.nextID()
		waiting[id] = i
		if err := c.send(withID(m, id)); err != nil {
			t.Fatalf("send %d bytes: %v", len(m), err)
		}
	}
	for missing := 2 * len(msgs); missing > 0; {
		v, b, err := c.receive(time.Now().Add(idle))
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		id, _ := answerID(b)
		i, ok := waiting[id]
		switch {
		case !ok:
			if c.late != nil {
				c.late(v, b)
			}
		case answers[i][v] != nil:
			t.Errorf("%s answers twice:\nquestion %x\nanswers %x\nand %x", variants[v], msgs[i], answers[i][v], b)
		default:
			answers[i][v] = slices.Clone(b)
			missing--
		}
	}
	return answers
}

// same asks both until their answers agree, and returns the common one. Stock handles each message
// on a goroutine of its own whenever that gets to run, clocks tick between the two answers, and the
// kernel may drop: hence the repetitions, with more patience each.
func (c *client) same(t testing.TB, name string, msg []byte) []byte {
	t.Helper()
	var last [2][]byte
	for _, idle := range []time.Duration{150, 300, 600, 1200, 2400} {
		last = c.ask(t, idle*time.Millisecond, msg)[0]
		if equal(last) && (last[0] != nil || idle > 150) {
			return last[0]
		}
	}
	t.Errorf("%s: the answers differ\nquestion %s\n%s", name, show(msg), showBoth(last))
	return nil
}

// equal compares the answers with each other; their IDs are the same.
func equal(a [2][]byte) bool {
	return (a[0] == nil) == (a[1] == nil) && bytes.Equal(a[0], a[1])
}

func showBoth(a [2][]byte) string {
	return fmt.Sprintf("stock   %s\nfastudp %s", show(a[0]), show(a[1]))
}

func show(b []byte) string {
	if b == nil {
		return "silence"
	}
	text := "(does not unpack)"
	if m := new(dns.Msg); m.Unpack(b) == nil {
		text = m.String()
	}
	return fmt.Sprintf("%d bytes %x\n%s", len(b), b[:min(len(b), 600)], text[:min(len(text), 2000)])
}

// pack packs m, which the test has made well.
func pack(m *dns.Msg) []byte {
	b, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

func question(name string, qtype uint16) *dns.Msg {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	m.Id = 0
	return m
}

func unpack(t testing.TB, b []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(b); err != nil {
		t.Fatalf("answer %x: %v", b, err)
	}
	return m
}

func eventually(t testing.TB, what string, limit time.Duration, state func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !state(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// metrics are the values of the series about i whose names begin with prefix. Of a histogram it has
// the number of observations and, if they are no times, their sum. The port of i becomes PORT.
func metrics(t testing.TB, prefix string, i *instance) map[string]float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(":", i.port)
	values := make(map[string]float64)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			ours := false
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+strings.ReplaceAll(l.GetValue(), port, ":PORT"))
				ours = ours || l.GetName() == "server" && strings.HasSuffix(l.GetValue(), port)
			}
			if !ours {
				continue
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			values[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if h := m.GetHistogram(); h != nil && !strings.HasSuffix(f.GetName(), "_seconds") {
				values["sum of "+name] += h.GetSampleSum()
			}
		}
	}
	return values
}

// sameMetrics compares what CoreDNS has counted for both. Some of it is counted after the answer.
func sameMetrics(t *testing.T, p [2]*instance) map[string]float64 {
	t.Helper()
	var got [2]map[string]float64
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		for v := range variants {
			got[v] = metrics(t, "coredns_", p[v])
			maps.DeleteFunc(got[v], func(name string, _ float64) bool { return strings.Contains(name, "coredns_fastudp_") })
		}
		d := diff(got[0], got[1])
		if d == "" {
			return got[0]
		}
		if time.Now().After(end) {
			t.Errorf("metrics differ:\n%s", d)
			return got[0]
		}
	}
}

// counter is a counter that is not about a server.
func counter(t testing.TB, name string) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// diff lists the keys at which a and b differ.
func diff(a, b map[string]float64) string {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if x, y := a[k], b[k]; x != y {
			lines = append(lines, fmt.Sprintf("%s: stock %v, fastudp %v", k, x, y))
		}
	}
	return strings.Join(lines, "\n")
}

// logged is what the log prints while f runs.
func logged(f func()) string {
	var b lockedBuffer
	log.SetOutput(&b)
	defer log.SetOutput(io.Discard)
	f()
	return b.String()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// upstream is a name server that counts what it is asked.
type upstream struct {
	addr string
	mu   sync.Mutex
	seen map[string]int
	fail bool // answers SERVFAIL
}

func (u *upstream) count(name string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen[name]
}

func (u *upstream) setFail(fail bool) {
	u.mu.Lock()
	u.fail = fail
	u.mu.Unlock()
}

// startUpstream answers A and TXT questions with ttl. The TXT record tells the query's EDNS options.
func startUpstream(t testing.TB, ttl uint32) *upstream {
	t.Helper()
	u := &upstream{seen: make(map[string]int)}
	answer := dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		u.mu.Lock()
		u.seen[r.Question[0].Name]++
		fail := u.fail
		u.mu.Unlock()
		m := new(dns.Msg).SetReply(r)
		q := r.Question[0]
		h := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: ttl}
		switch {
		case fail || strings.HasPrefix(q.Name, "servfail."):
			m.Rcode = dns.RcodeServerFailure
		case strings.HasPrefix(q.Name, "nx."):
			m.Rcode = dns.RcodeNameError
		case q.Qtype == dns.TypeA:
			m.Answer = append(m.Answer, &dns.A{Hdr: h, A: net.IPv4(192, 0, 2, 7)})
		case q.Qtype == dns.TypeTXT:
			txt := []string{"plain"}
			if o := r.IsEdns0(); o != nil {
				txt = []string{fmt.Sprint("do ", o.Do())}
				for _, opt := range o.Option {
					txt = append(txt, fmt.Sprint(opt.Option(), " ", opt))
				}
			}
			m.Answer = append(m.Answer, &dns.TXT{Hdr: h, Txt: txt})
		}
		if o := r.IsEdns0(); o != nil {
			m.SetEdns0(4096, o.Do())
		}
		w.WriteMsg(m)
	})
	u.addr = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	pc, err := net.ListenPacket("udp", u.addr)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", u.addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{PacketConn: pc, Handler: answer, UDPSize: 65535}, {Listener: l, Handler: answer}} {
		go s.ActivateAndServe()
		t.Cleanup(func() { s.Shutdown() })
	}
	return u
}

// deadAddr is an address where nobody listens.
func deadAddr(t testing.TB) string {
	return fmt.Sprintf("127.0.0.1:%d", freePort(t))
}

// child is this test binary serving a Corefile in a process of its own.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr lockedBuffer
	port   int
	ended  chan struct{}
}

func childMain(corefile string) int {
	// What the tests of a dying process need.
	handlers.Store("panic", handlerFunc(func(context.Context, dns.ResponseWriter, *dns.Msg) (int, error) {
		panic("the handler panics")
	}))
	inst, err := caddy.Start(input(corefile))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	fmt.Println("serving")
	io.Copy(io.Discard, os.Stdin)
	inst.ShutdownCallbacks()
	inst.Stop()
	return 0
}

// startChild returns when the child serves.
func startChild(t *testing.T, corefile string, v int) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(exe), port: freePort(t), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childCorefile+"="+write(corefile, v, c.port))
	c.cmd.Stderr = &c.stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	var out lockedBuffer
	c.cmd.Stdout = &out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		c.stdin.Close()
		select {
		case <-c.ended:
		case <-time.After(10 * time.Second):
			c.cmd.Process.Kill()
			<-c.ended
		}
	})
	eventually(t, "the child serves", 20*time.Second, func() bool { return strings.Contains(out.String(), "\n") })
	if got := strings.TrimSpace(out.String()); got != "serving" {
		t.Fatalf("child: %s", got)
	}
	return c
}

// metadataOf reads a metadata label within a handler.
func metadataOf(ctx context.Context, label string) string {
	if f := metadata.ValueFunc(ctx, label); f != nil {
		return f()
	}
	return "none"
}

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
