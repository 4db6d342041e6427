package fastudp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

func budgetEngines(n, sockets int) []*engine {
	b := newBudget(n, sockets)
	var es []*engine
	for range sockets {
		es = append(es, &engine{budget: b, count: new(counters)})
	}
	return es
}

// admitAll admits until e refuses and returns what release needs.
func admitAll(e *engine) (held []place) {
	for {
		p := e.admit()
		if p == nowhere {
			return held
		}
		held = append(held, p)
	}
}

// TestBudgetExact fills the budget from all sockets: it holds n queries and not one more. A socket
// alone gets all but the parts that the others own.
func TestBudgetExact(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 10, 100, 10000} {
		for _, sockets := range []int{1, 2, 3, 8} {
			es := budgetEngines(n, sockets)
			total, own := 0, n/(2*sockets)
			for i, e := range es {
				held := admitAll(e)
				if i == 0 && len(held) != n-own*(sockets-1) {
					t.Errorf("budget %d: the first of %d sockets alone got %d", n, sockets, len(held))
				}
				total += len(held)
			}
			if total != n {
				t.Errorf("budget %d over %d sockets: %d admitted", n, sockets, total)
			}
		}
	}
}

// TestBudgetReuse returns queries in every order: whichever leave first, as many fit again.
func TestBudgetReuse(t *testing.T) {
	const n = 10
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		e := budgetEngines(n, 1)[0]
		held := admitAll(e)
		for range 20 {
			rng.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
			k := rng.IntN(len(held) + 1)
			for _, b := range held[:k] {
				e.release(b)
			}
			held = append(held[k:], admitAll(e)...)
			if len(held) != n {
				t.Fatalf("seed %d: with %d of %d queries in handlers the next was refused", seed, len(held), n)
			}
		}
	}
}

// TestBudgetConcurrent has many workers of several sockets at it: never more than n at once, the
// whole of n still to be had afterwards, and in the end all has been given back.
func TestBudgetConcurrent(t *testing.T) {
	const workers, rounds = 4, 5000
	for _, n := range []int{1, 5, 16} {
		for _, sockets := range []int{1, 3} {
			t.Run(fmt.Sprintf("%d over %d", n, sockets), func(t *testing.T) {
				es := budgetEngines(n, sockets)
				var inside, most atomic.Int64
				var wg sync.WaitGroup
				held := make([][]place, workers*sockets)
				for w := range held {
					e, rng, mine := es[w%sockets], rand.New(rand.NewPCG(1, uint64(w))), &held[w]
					wg.Go(func() {
						h := *mine
						for range rounds {
							if len(h) > 0 && rng.IntN(2) == 0 {
								i := rng.IntN(len(h))
								inside.Add(-1)
								e.release(h[i])
								h = slices.Delete(h, i, i+1)
							}
							if b := e.admit(); b != nowhere {
								k := inside.Add(1)
								for m := most.Load(); k > m && !most.CompareAndSwap(m, k); m = most.Load() {
								}
								h = append(h, b)
							}
						}
						*mine = h
					})
				}
				wg.Wait()
				if most.Load() > int64(n) {
					t.Errorf("%d queries in handlers at once", most.Load())
				}
				total := int(inside.Load())
				for i, e := range es {
					more := admitAll(e)
					total += len(more)
					held[i] = append(held[i], more...)
				}
				if total != n {
					t.Errorf("%d queries in handlers when all sockets are refused", total)
				}
				for w, h := range held {
					for _, b := range h {
						es[w%sockets].release(b)
					}
				}
				for _, e := range es {
					if k := e.inflight(); k != 0 {
						t.Errorf("%d queries left in the count", k)
					}
				}
				if k := es[0].budget.taken.Load(); k != 0 {
					t.Errorf("%d queries of the common part never given back", k)
				}
			})
		}
	}
}

// TestNoBudget admits whatever comes and counts it.
func TestNoBudget(t *testing.T) {
	e := budgetEngines(0, 1)[0]
	if e.budget != nil {
		t.Fatal("a budget for max_inflight 0")
	}
	for range 100_000 {
		if e.admit() != own {
			t.Fatal("refused without a bound")
		}
	}
	if n := e.inflight(); n != 100_000 {
		t.Fatalf("%d counted", n)
	}
}
