package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// peers are other name servers. Each has one thread or worker, no rate limit, no other user or root,
// and answers over UDP at one address.
var peers = []server{
	{name: "NSD", program: "nsd", command: nsd},
	{name: "Knot", program: "knotd", command: knot},
	{name: "Unbound", program: "unbound", command: unbound},
	{name: "PowerDNS", program: "pdns_server", command: powerDNS},
	{name: "BIND", program: "named", command: bind},
}

func nsd(dir string, p place, w work) ([]string, error) {
	conf, err := write(dir, "nsd.conf", fmt.Sprintf(`server:
  ip-address: %s@%d
  server-count: 1
  username: ""
  chroot: ""
  database: ""
  pidfile: "%s/pid"
  zonesdir: "%[3]s"
  xfrdir: "%[3]s"
  xfrdfile: ""
  zonelistfile: "%[3]s/zone.list"
  rrl-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: "%s"
  zonefile: "%s"
`, p.host, p.port, dir, w.zone, w.zoneFile))
	return []string{"nsd", "-d", "-c", conf}, err
}

func knot(dir string, p place, w work) ([]string, error) {
	conf, err := write(dir, "knot.conf", fmt.Sprintf(`server:
  rundir: "%[3]s"
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
  listen: %[1]s@%[2]d
log:
  - target: stderr
    any: error
database:
  storage: "%[3]s"
zone:
  - domain: "%[4]s"
    file: "%[5]s"
    storage: "%[3]s"
    zonefile-sync: -1
    journal-content: none
`, p.host, p.port, dir, w.zone, w.zoneFile))
	return []string{"knotd", "-c", conf}, err
}

// unbound answers from local data: it is a resolver, and this is its simplest answer.
func unbound(dir string, p place, w work) ([]string, error) {
	var data strings.Builder
	if w.zone == "." {
		return nil, fmt.Errorf("unbound serves no root zone from local data")
	}
	f, err := os.Open(w.questions)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fmt.Fprintf(&data, "  local-data: \"%s 192.0.2.1\"\n", s.Text())
	}
	conf, err := write(dir, "unbound.conf", fmt.Sprintf(`server:
  interface: %s
  port: %d
  num-threads: 1
  chroot: ""
  username: ""
  directory: "%s"
  pidfile: ""
  use-syslog: no
  do-daemonize: no
  access-control: 0.0.0.0/0 allow
  module-config: "iterator"
  minimal-responses: yes
  so-rcvbuf: 4m
  ip-ratelimit: 0
  ratelimit: 0
  local-zone: "%s." static
%sremote-control:
  control-enable: no
`, p.host, p.port, dir, w.zone, &data))
	return []string{"unbound", "-d", "-p", "-c", conf}, err
}

func powerDNS(dir string, p place, w work) ([]string, error) {
	zones, err := write(dir, "zones.conf", zoneStatement(w))
	if err != nil {
		return nil, err
	}
	_, err = write(dir, "pdns.conf", fmt.Sprintf(`launch=bind
bind-config=%s
local-address=%s
local-port=%d
socket-dir=%s
daemon=no
guardian=no
receiver-threads=1
distributor-threads=1
disable-syslog=yes
loglevel=3
security-poll-suffix=
webserver=no
`, zones, p.host, p.port, dir))
	return []string{"pdns_server", "--config-dir=" + dir}, err
}

func bind(dir string, p place, w work) ([]string, error) {
	conf, err := write(dir, "named.conf", fmt.Sprintf(`options {
	directory "%[1]s";
	listen-on port %[3]d { %[2]s; };
	listen-on-v6 { none; };
	pid-file none;
	session-keyfile "%[1]s/session.key";
	recursion no;
	dnssec-validation no;
	notify no;
	minimal-responses yes;
	querylog no;
};
controls { };
%[4]s`, dir, p.host, p.port, zoneStatement(w)))
	return []string{"named", "-f", "-n", "1", "-U", "1", "-c", conf}, err
}

func zoneStatement(w work) string {
	return fmt.Sprintf("zone \"%s\" { type master; file \"%s\"; };\n", w.zone, w.zoneFile)
}
