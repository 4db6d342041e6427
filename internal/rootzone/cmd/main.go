// Command cmd writes a root-like zone and the questions that go with it.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"

	"github.com/fastudp/fastudp/internal/rootzone"
	"github.com/miekg/dns"
)

func main() {
	seed := flag.Int64("seed", rootzone.Seed, "`number` that decides the zone")
	zoneFile := flag.String("o", "", "write the zone to this `file`")
	questionFile := flag.String("questions", "", "write its questions, for dnsperf, to this `file`")
	flag.Parse()
	if flag.NArg() > 0 || (*zoneFile == "" && *questionFile == "") {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(*seed, *zoneFile, *questionFile); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(seed int64, zoneFile, questionFile string) error {
	var zone bytes.Buffer
	if err := rootzone.Generate(&zone, seed); err != nil {
		return err
	}
	if zoneFile != "" {
		if err := os.WriteFile(zoneFile, zone.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if questionFile == "" {
		return nil
	}
	questions, err := rootzone.Questions(&zone)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, q := range questions {
		fmt.Fprintf(&lines, "%s %s\n", q.Name, dns.Type(q.Type))
	}
	return os.WriteFile(questionFile, lines.Bytes(), 0o644)
}
