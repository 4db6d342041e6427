package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

const (
	openTimeout = 500 * time.Millisecond // for the last answers; before, an ID that comes again has lost
	openBehind  = 2 * time.Second        // after which what was due in time is no more sent
	sendTries   = 1000
	openBurst   = 16 // queries that are due before it looks for answers
)

type openRun struct {
	openLoop
	epoll     int
	sockets   []int
	due       [][1 << 16]int64 // by socket and ID, when a query without an answer was due; 0 is none
	waiting   int
	out       outcome
	latencies *hdrhistogram.Histogram // ns
}

func (l openLoop) run(ctx context.Context) (outcome, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // nothing below allocates
	r := &openRun{openLoop: l, epoll: -1, due: make([][1 << 16]int64, l.ports), latencies: hdrhistogram.New(1, int64(10*time.Second), 3)}
	defer r.close()
	if err := r.open(); err != nil {
		return outcome{}, err
	}
	err := r.loop(ctx)
	h := r.latencies
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtPercentile(q)) }
	r.out.Lost = r.out.Sent - r.out.Answered
	if due := uint64(r.rate * r.duration.Seconds()); due > r.out.Sent {
		r.out.Late += due - r.out.Sent // and never sent
	}
	r.out.Latency = &latency{
		Average: time.Duration(h.Mean()), Min: time.Duration(h.Min()), Max: time.Duration(h.Max()), StdDev: time.Duration(h.StdDev()),
		P50: at(50), P99: at(99), P999: at(99.9),
	}
	return r.out, err
}

func (r *openRun) open() (err error) {
	if most := float64(r.ports) * (1 << 16) / openTimeout.Seconds(); r.rate > most {
		return fmt.Errorf("%d source ports are good for %.0f queries a second: beyond, IDs would come again before an answer is late", r.ports, most)
	}
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	to := &unix.SockaddrInet4{Port: int(r.target.Port()), Addr: r.target.Addr().As4()}
	for i := range r.ports {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("socket: %w", err)
		}
		r.sockets = append(r.sockets, fd)
		if err := unix.Connect(fd, to); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		const size = 4 << 20
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
		}
		if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
			return fmt.Errorf("epoll_ctl: %w", err)
		}
	}
	return nil
}

func (r *openRun) close() {
	for _, fd := range r.sockets {
		unix.Close(fd)
	}
	if r.epoll >= 0 {
		unix.Close(r.epoll)
	}
}

func (r *openRun) loop(ctx context.Context) error {
	begin := time.Now()
	now := func() int64 { return int64(time.Since(begin)) + 1 } // never 0
	gap := 0.0
	if r.rate > 0 {
		gap = float64(time.Second) / r.rate
	}
	var events [64]unix.EpollEvent
	for turn := 1; ; turn++ {
		t := now()
		over := t > int64(r.duration+openBehind) || turn%4096 == 0 && ctx.Err() != nil
		for range openBurst {
			due := t
			if gap > 0 {
				due = int64(float64(r.out.Sent)*gap) + 1
			}
			over = over || due > int64(r.duration)
			if over || due > t || gap == 0 && r.awaits(t) {
				break
			}
			if err := r.send(due, t); err != nil {
				return err
			}
		}
		n, err := unix.EpollWait(r.epoll, events[:], 0)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, e := range events[:max(n, 0)] {
			if err := r.receive(int(e.Fd), now); err != nil {
				return err
			}
		}
		if !over {
			r.out.Elapsed = time.Duration(t)
		} else if r.waiting == 0 || t > int64(r.out.Elapsed+openTimeout) || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// place is the socket and the ID of query n.
func (r *openRun) place(n uint64) (socket int, id uint16) {
	return int(n % uint64(r.ports)), uint16(n / uint64(r.ports))
}

// awaits says whether the last query may still be answered.
func (r *openRun) awaits(now int64) bool {
	if r.out.Sent == 0 {
		return false
	}
	s, id := r.place(r.out.Sent - 1)
	due := r.due[s][id]
	return due > 0 && now-due < int64(openTimeout)
}

func (r *openRun) send(due, now int64) error {
	s, id := r.place(r.out.Sent)
	q := r.questions[r.out.Sent%uint64(len(r.questions))]
	binary.BigEndian.PutUint16(q, id)
	if r.due[s][id] == 0 {
		r.waiting++
	}
	r.due[s][id] = due
	r.out.Sent++
	if now-due > int64(time.Millisecond) {
		r.out.Late++
	}
	var err error
	for range sendTries {
		switch _, err = unix.Write(r.sockets[s], q); err {
		case nil:
			return nil
		case unix.EINTR, unix.EAGAIN, unix.ECONNREFUSED: // the last is of an earlier query, and this one is not sent
		default:
			return fmt.Errorf("send: %w", err)
		}
	}
	return fmt.Errorf("send, %d times: %w", sendTries, err)
}

func (r *openRun) receive(s int, now func() int64) error {
	var b [4096]byte
	for {
		n, err := unix.Read(r.sockets[s], b[:])
		switch {
		case err == unix.EAGAIN:
			return nil
		case err == unix.EINTR || err == unix.ECONNREFUSED || err == nil && n < 12:
			continue
		case err != nil:
			return fmt.Errorf("receive: %w", err)
		}
		due := &r.due[s][binary.BigEndian.Uint16(b[:])]
		if *due == 0 {
			continue // a second answer, or one too late
		}
		r.latencies.RecordValue(now() - *due)
		*due = 0
		r.waiting--
		r.out.Answered++
	}
}
