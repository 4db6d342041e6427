package fastudp

import "sync/atomic"

// budget bounds the queries in handlers at one address. Each socket owns a part of it that it
// counts alone; only a socket that has used its own up touches what all share.
type budget struct {
	own    int64 // for each socket
	common int64
	taken  atomic.Int64 // of common

	extra      int64 // beyond the bound, for questions that were answered at once lately
	extraTaken atomic.Int64
}

// newBudget splits n queries over sockets; n = 0 means no bound and gives nil.
func newBudget(n, sockets int) *budget {
	if n == 0 {
		return nil
	}
	own := n / (2 * sockets)
	return &budget{own: int64(own), common: int64(n - own*sockets), extra: int64(max(n/quickShare, 1))}
}

// borrow takes one query from the common part.
func (b *budget) borrow() bool {
	if b.taken.Add(1) > b.common {
		b.taken.Add(-1)
		return false
	}
	return true
}

func (b *budget) giveBack() { b.taken.Add(-1) }

// borrowExtra takes one query from what is beyond the bound.
func (b *budget) borrowExtra() bool {
	if b.extraTaken.Add(1) > b.extra {
		b.extraTaken.Add(-1)
		return false
	}
	return true
}

func (b *budget) giveBackExtra() { b.extraTaken.Add(-1) }
