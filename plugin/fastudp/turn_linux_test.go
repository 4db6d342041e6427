package fastudp

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
)

// TestTurn has a goroutine wait for a socket, makes the socket ready, and passes the turn: with one
// processor the goroutine has run when the turn comes back. Yielding to the scheduler does not do
// that as long as somebody is runnable.
func TestTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 200
	turn := newTurn()
	if turn.file == nil {
		t.Fatal("no descriptor for a turn")
	}
	defer turn.close()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var got atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 16)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			got.Add(1)
		}
	}()
	to := dialTest(t, c.LocalAddr().(*net.UDPAddr))
	settle := func(n int64) {
		for got.Load() < n {
			turn.pass()
		}
	}
	try := func(pass func()) (ran int) {
		for range rounds {
			n := got.Load() + 1
			mustWrite(t, to, []byte("x"))
			pass()
			if got.Load() == n {
				ran++
			}
			settle(n)
		}
		return ran
	}
	settle(0)
	passed, yielded := try(turn.pass), try(runtime.Gosched)
	t.Logf("the goroutine ran in %d of %d turns passed, and in %d of %d yields", passed, rounds, yielded, rounds)
	if passed < rounds*9/10 {
		t.Errorf("the turn came back in %d of %d rounds before the ready goroutine had run", rounds-passed, rounds)
	}
	if yielded > passed/2 {
		t.Errorf("yielding does as well: turn is of no use any more")
	}
	c.Close()
	<-ended
}

// TestTurnClosed passes a turn that is closed, and closes one that is being passed: it does not wait.
func TestTurnClosed(t *testing.T) {
	turn := newTurn()
	if turn.file == nil {
		t.Fatal("no descriptor for a turn")
	}
	for range 1000 {
		turn.pass()
	}
	turn.close()
	turn.pass()
}

// TestTurnWithout passes a turn that could get no descriptor: it yields.
func TestTurnWithout(t *testing.T) {
	turn := new(turn)
	turn.pass()
	turn.close()
}
