package fastudp

import "github.com/coredns/caddy"

// steering has the kernel pick the socket as the option says, for as long as the group of sockets on
// the address is this process's alone: another process's sockets must neither get what it did not ask
// for nor lose what it did.
type steering struct {
	how      Steer
	sockets  int  // of the address
	shared   bool // with another process
	attached bool
}

// steer begins to steer, or does so anew if other processes have come or gone since it last looked.
func (l *listener) steer(first bool) {
	s := &l.steering
	c := l.engines[0].io.conn()
	if s.how == SteerHash {
		if first && l.succeedsSteered() {
			l.attach(SteerHash)
		}
		return
	}
	shared := foreignSocket(c)
	if !first && shared == s.shared {
		return
	}
	s.shared = shared
	switch {
	case shared:
		log.Warningf("%s: another process has sockets on this address: the kernel's hash picks the socket instead of steer %s until they are gone", l.name(), s.how)
		if s.attached { // what else there may be is not ours
			l.attach(SteerHash)
		}
	case l.attach(s.how) && !first:
		log.Infof("%s: the other process's sockets are gone: steer %s again", l.name(), s.how)
	}
}

func (l *listener) attach(how Steer) bool {
	if err := attachSteer(l.engines[0].io.conn(), how, l.steering.sockets); err != nil {
		log.Warningf("%s: steer %s is not to be had, the kernel's hash picks the socket: %v", l.name(), how, err)
		return false
	}
	l.steering.attached = how != SteerHash
	return true
}

// succeedsSteered says whether l has sockets of a listener that may have steered them.
func (l *listener) succeedsSteered() bool {
	if caddy.IsUpgrade() {
		return true
	}
	for _, other := range live.list() {
		if other != l && other.addr == l.addr && other.steering.how != SteerHash {
			return true
		}
	}
	return false
}
