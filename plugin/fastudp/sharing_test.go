package fastudp

import (
	"context"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/miekg/dns"
)

// cacheLine is the unit in which processors share memory; they fetch the next one with it.
const cacheLine = 128

// hotWords are the lines that a socket writes for each query or batch.
func hotWords(e *engine) map[uintptr]string {
	lines := make(map[uintptr]string)
	add := func(name string, v reflect.Value) {
		first := v.UnsafeAddr()
		for at := first; at < first+v.Type().Size(); at += 8 {
			lines[at/cacheLine] = name
		}
	}
	engine := reflect.ValueOf(e).Elem()
	for _, name := range []string{"served", "claim", "taken", "ready", "own", "borrowed", "mu", "idle", "fewest", "workers"} {
		add("engine."+name, engine.FieldByName(name))
	}
	queue := reflect.ValueOf(e.out).Elem()
	for _, name := range []string{"draining", "mu", "pending", "spare", "flushing"} {
		add("sendQueue."+name, queue.FieldByName(name))
	}
	all := func(v reflect.Value) {
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "_" {
				add(v.Type().Name()+"."+name, v.Field(i))
			}
		}
	}
	all(reflect.ValueOf(e.count).Elem())
	io := reflect.ValueOf(e.io).Elem()
	all(io)
	if groups := io.FieldByName("groups"); groups.IsValid() {
		all(groups.Elem())
	}
	lines[uintptr(unsafe.Pointer(unsafe.SliceData(e.packets)))/cacheLine] = "packets"
	return lines
}

// TestNothingShared has two sockets of a listener under load from several clients: each writes only
// lines of memory that are its own, and neither touches the part of the bound that both could take from.
func TestNothingShared(t *testing.T) {
	budget := newBudget(defaultMaxInflight, 2)
	l := &listener{ctx: context.Background(), local: testLocal, handler: handlerOf(func(w dns.ResponseWriter, r *dns.Msg) {
		r.Response = true
		w.WriteMsg(r)
	})}
	var clients sync.WaitGroup
	for range 2 {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		o := DefaultOptions()
		packets, count := newPackets(o.Batch), new(counters)
		io, err := openIO(c, false, o, packets, count)
		if err != nil {
			t.Fatal(err)
		}
		e := newEngine(io, o, budget, packets, count, l.serve)
		l.engines = append(l.engines, e)
		e.start()
		for range 2 {
			clients.Go(func() { ping(t, c.LocalAddr(), 3000) })
		}
	}
	clients.Wait()
	for i, e := range l.engines {
		stopEngine(e)
		if n := e.count.sent.Load(); n != 6000 {
			t.Errorf("socket %d sent %d responses", i, n)
		}
		e.io.close()
	}
	if n := budget.taken.Load(); n != 0 {
		t.Errorf("%d queries are on the common part of the bound", n)
	}
	if e := l.engines[0]; budget.own < 1000 || e.own.Load() != 0 {
		t.Errorf("each socket owns %d, %d are in use", budget.own, e.own.Load())
	}
	other := hotWords(l.engines[1])
	for line, name := range hotWords(l.engines[0]) {
		if theirs, ok := other[line]; ok {
			t.Errorf("%s of one socket shares a line with %s of the other", name, theirs)
		}
	}
}

// ping asks n times, some at once.
func ping(t *testing.T, to net.Addr, n int) {
	c, err := net.Dial("udp4", to.String())
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	query := wire(t, new(dns.Msg).SetQuestion("a.", dns.TypeA))
	buf := make([]byte, 512)
	c.SetReadDeadline(time.Now().Add(ioLimit))
	for i := 0; i < n; i += 10 {
		for range 10 {
			c.Write(query)
		}
		for range 10 {
			if _, err := c.Read(buf); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

type handlerOf func(dns.ResponseWriter, *dns.Msg)

func (f handlerOf) ServeDNS(_ context.Context, w dns.ResponseWriter, r *dns.Msg) { f(w, r) }
