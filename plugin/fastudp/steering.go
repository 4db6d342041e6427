package fastudp

import (
	"slices"
	"sync/atomic"
)

// steering has the kernel pick the socket as the option says, for as long as the group of sockets on
// the address is this process's alone: another process's sockets must neither get what it did not ask
// for nor lose what it did.
type steering struct {
	how     Steer
	sockets int  // of the address
	program bool // the group may have a program, ours or a predecessor's
	looked  bool
	shared  bool        // with another process
	works   atomic.Bool // how is in force
}

// inForce is how the kernel picks the socket now.
func (s *steering) inForce() Steer {
	if s.works.Load() {
		return s.how
	}
	return SteerHash
}

// steer begins to steer, or does so anew if other processes have come or gone since it last looked.
func (l *listener) steer() {
	if slices.Contains(retiring.list(), l) {
		return // the group is the successor's too
	}
	s := &l.steering
	first := !s.looked
	s.looked = true
	if s.how == SteerHash {
		if first && s.program {
			l.attach(SteerHash)
		}
		return
	}
	shared := foreignSocket(l.engines[0].io.conn())
	if !first && shared == s.shared {
		return
	}
	s.shared = shared
	switch {
	case shared:
		if s.program { // what else there may be is the other's
			l.attach(SteerHash)
		}
		log.Warningf("%s: another process has sockets on this address: the kernel's hash picks the socket instead of steer %s until they are gone", l.name(), s.how)
	case l.attach(s.how) && !first:
		log.Infof("%s: the other process's sockets are gone: steer %s again", l.name(), s.how)
	}
}

func (l *listener) attach(how Steer) bool {
	if err := attachSteer(l.engines[0].io.conn(), how, l.steering.sockets); err != nil {
		log.Warningf("%s: steer %s is not to be had, the kernel's hash picks the socket: %v", l.name(), how, err)
		return false
	}
	l.steering.program = how != SteerHash
	l.steering.works.Store(severalSockets && how != SteerHash)
	return true
}
