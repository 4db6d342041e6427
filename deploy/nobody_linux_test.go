package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fastudp/fastudp/internal/child"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

const bindService = "0000000000000400" // CAP_NET_BIND_SERVICE in /proc/PID/status

// namespace makes a network namespace in which loopback is up, and returns its name.
func namespace(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a network namespace and to become somebody else")
	}
	name := fmt.Sprintf("fastudp-deploy-%d", os.Getpid())
	for _, args := range [][]string{{"netns", "add", name}, {"-n", name, "link", "set", "lo", "up"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "delete", name).Run() })
	return name
}

// inside runs f in the namespace, on a thread that ends with it.
func inside(t *testing.T, name string, f func() error) error {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		ns, err := os.Open("/run/netns/" + name)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// publicDir is a directory that everybody may enter.
func publicDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fastudp-deploy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestNobody runs the program on port 53 as the unit does and as the container does: as a user without
// rights and with one capability. It serves with all its sockets, and reloads.
func TestNobody(t *testing.T) {
	ns := namespace(t)
	dir := publicDir(t)
	exe, corefile := filepath.Join(dir, "coredns"), filepath.Join(dir, "Corefile")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", exe, "github.com/fastudp/fastudp/cmd/coredns").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, c := range []struct {
		name string
		port string
		file string   // capabilities of the file
		drop []string // arguments of setpriv
		caps string
	}{
		{"ambient capability, no new privileges", "53", "", []string{"--inh-caps", "-all,+net_bind_service", "--ambient-caps", "+net_bind_service", "--bounding-set", "-all,+net_bind_service", "--no-new-privs"}, bindService},
		{"capability of the file", "53", "cap_net_bind_service=+ep", []string{"--inh-caps", "-all", "--bounding-set", "-all,+net_bind_service"}, bindService},
		{"no capability", "1053", "", []string{"--inh-caps", "-all", "--bounding-set", "-all", "--no-new-privs"}, "0000000000000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.file != "" {
				if out, err := exec.Command("setcap", c.file, exe).CombinedOutput(); err != nil {
					t.Fatalf("setcap: %v: %s", err, out)
				}
				defer exec.Command("setcap", "-r", exe).Run()
			}
			write := func(sockets int) {
				if err := os.WriteFile(corefile, fmt.Appendf(nil, ".:%s {\n bind 127.0.0.1 ::1\n fastudp %d\n whoami\n}\n", c.port, sockets), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write(3)
			args := append([]string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"}, c.drop...)
			p, err := child.Start(child.Options{Name: "coredns", Netns: ns, Dir: dir}, append(args, exe, "-conf", corefile)...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.Stop(); err != nil {
					t.Error(err)
				}
			}()
			ask := func(network, host string) error {
				return inside(t, ns, func() error {
					client := dns.Client{Net: network, Timeout: time.Second}
					_, _, err := client.Exchange(new(dns.Msg).SetQuestion("a.test.", dns.TypeA), host+":"+c.port)
					return err
				})
			}
			eventually := func(what string, state func() bool) {
				t.Helper()
				for end := time.Now().Add(20 * time.Second); !state(); time.Sleep(20 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("never %s; its log:\n%s", what, p.Log())
					}
				}
			}
			eventually("answers", func() bool { return ask("udp", "127.0.0.1") == nil })
			all := func() {
				t.Helper()
				for _, network := range []string{"udp", "tcp"} {
					for _, host := range []string{"127.0.0.1", "[::1]"} {
						if err := ask(network, host); err != nil {
							t.Errorf("%s %s: %v", network, host, err)
						}
					}
				}
			}
			all()
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534", "CapEff:\t" + c.caps, "CapPrm:\t" + c.caps} {
				if !strings.Contains(string(status), want) {
					t.Errorf("its status does not have %q:\n%s", want, status)
				}
			}
			write(5)
			p.Signal(syscall.SIGUSR1)
			eventually("has reloaded", func() bool { return strings.Contains(p.Log(), "Reloading complete") })
			all()
			eventually("serves with 5 sockets", func() bool { return strings.Contains(p.Log(), ": 5 sockets") })
			for _, bad := range []string{"[ERROR]", "serving with", "not to be had", "permitted"} {
				if strings.Contains(p.Log(), bad) {
					t.Errorf("%q in its log:\n%s", bad, p.Log())
				}
			}
		})
	}
}

// TestUnit has systemd read the unit: it finds no mistake, and little that the service may do.
func TestUnit(t *testing.T) {
	systemd, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze")
	}
	unit, err := os.ReadFile("coredns.service")
	if err != nil {
		t.Fatal(err)
	}
	// The program must exist for systemd to find no fault.
	file := filepath.Join(t.TempDir(), "coredns.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(unit), "/usr/local/bin/coredns", "/bin/true")), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(systemd, "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, err := exec.Command(systemd, "security", "--offline=true", "--threshold=20", "--no-pager", file).CombinedOutput(); err != nil {
		t.Errorf("security: %v\n%s", err, out)
	}
}
