// Package faults holds tests alone: whole CoreDNS instances with fastudp meet refused system calls, full
// descriptor tables, taken ports, networks that go away, and handlers and clients that misbehave.
package faults
