//go:build !linux

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/fastudp/fastudp/internal/child"
)

var errLinux = errors.New("the measurements need Linux")

func newVeth(context.Context) (*veth, error)                           { return nil, errLinux }
func (v *veth) close()                                                 {}
func pinned(context.Context) (string, error)                           { return "", errLinux }
func echo(string) error                                                { return errLinux }
func busy([]int) (time.Duration, error)                                { return 0, errLinux }
func descendants(int) []int                                            { return nil }
func usage(*child.Child) (child.Usage, error)                          { return child.Usage{}, errLinux }
func dialIn(context.Context, string, string, string) (net.Conn, error) { return nil, errLinux }
func httpIn(string) *http.Client                                       { return nil }

func (openLoop) run(context.Context) (outcome, error) { return outcome{}, errLinux }
