package fastudp

import (
	"errors"
	"net"
	"syscall"
)

var (
	errTooLong     = errors.New("fastudp: message too long for a UDP datagram")
	errUnpackPanic = errors.New("fastudp: the message made the parser panic")
	errNoPacket    = errors.New("fastudp: the listener is read by its own workers")
)

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }

// errorName is the label under which err is counted: the errno's name where there is one.
func errorName(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errnoName(errno)
	}
	if isClosed(err) {
		return "closed"
	}
	return "other"
}
