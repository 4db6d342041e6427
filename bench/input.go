package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/fastudp/fastudp/internal/rootzone"
	"github.com/miekg/dns"
)

// work is something to ask a server.
type work struct {
	name      string
	plugins   string // of CoreDNS's server block
	zone      string // the origin of zoneFile; empty: no zone, only CoreDNS can do it
	zoneFile  string
	questions string // file, a name and a type a line as dnsperf reads it
	fill      string // questions to ask once before anything is measured; empty: none
	do        bool   // ask with the DNSSEC OK bit
}

const (
	smallNames = 1000   // names with an address each
	missLines  = 400000 // enough that a name comes again only after its second to live
)

// input are the works by name.
type input map[string]work

// newInput writes zones and questions to dir. resolver is the upstream's address, bits the length of
// the key that signs the root-like zone.
func newInput(dir, resolver string, bits int) (input, error) {
	in := inputWriter{dir: dir}
	small := in.write("small.zone", func(w io.Writer) {
		fmt.Fprint(w, "$ORIGIN example.org.\n$TTL 3600\n@ SOA ns hostmaster 1 3600 900 604800 300\n@ NS ns\nns A 192.0.2.53\n")
		for i := range smallNames {
			fmt.Fprintf(w, "n%d A 192.0.2.1\n", i+1)
		}
	})
	root := in.root(bits)
	names := in.write("names", func(w io.Writer) {
		for i := range smallNames {
			fmt.Fprintf(w, "n%d.example.org. A\n", i+1)
		}
	})
	whoami := in.write("whoami", func(w io.Writer) { fmt.Fprintln(w, "whoami.example.org. A") })
	rootQuestions := in.rootQuestions(root)
	if in.err != nil {
		return nil, in.err
	}

	forward := "forward . " + resolver
	cache := "cache 3600 {\nsuccess 100000 3600 1\n}\n"
	works := []work{
		{name: "whoami", plugins: "whoami", questions: whoami},
		{name: "file", plugins: "file " + small + " example.org", zone: "example.org", zoneFile: small, questions: names},
		{name: "hits", plugins: cache + forward, questions: names, fill: names},
		{name: "root", plugins: "file " + root + " .", zone: ".", zoneFile: root, questions: rootQuestions},
		{name: "root-do", plugins: "file " + root + " .", zone: ".", zoneFile: root, questions: rootQuestions, do: true},
		{name: "root-cache", plugins: cache + "file " + root + " .", questions: rootQuestions, fill: rootQuestions},
		{name: "kubernetes", plugins: "errors\nprometheus %METRICS%\ncache 30\n" + forward + "\nloadbalance", questions: names, fill: names},
	}
	for _, percent := range []int{1, 10, 100} {
		works = append(works, work{
			name: fmt.Sprintf("miss-%d%%", percent), plugins: cache + forward, fill: names,
			questions: in.write(fmt.Sprintf("miss%d", percent), func(w io.Writer) { missing(w, percent) }),
		})
	}
	input := make(input)
	for _, w := range works {
		input[w.name] = w
	}
	return input, in.err
}

// missing writes questions of which percent of 100 are for names that no cache has.
func missing(w io.Writer, percent int) {
	r := rand.New(rand.NewPCG(1, 0))
	for i := range missLines {
		if r.IntN(100) < percent {
			fmt.Fprintf(w, "%c%d.example.org. A\n", missPrefix, i)
		} else {
			fmt.Fprintf(w, "n%d.example.org. A\n", 1+r.IntN(smallNames))
		}
	}
}

// inputWriter writes files until the first error.
type inputWriter struct {
	dir string
	err error
}

func (in *inputWriter) write(name string, content func(io.Writer)) string {
	file := filepath.Join(in.dir, name)
	if in.err != nil {
		return file
	}
	f, err := os.Create(file)
	if err != nil {
		in.err = err
		return file
	}
	w := bufio.NewWriter(f)
	content(w)
	if in.err = w.Flush(); in.err == nil {
		in.err = f.Close()
	}
	return file
}

// root writes the signed root-like zone.
func (in *inputWriter) root(bits int) string {
	var zone bytes.Buffer
	err := rootzone.Generate(&zone, rootzone.Seed)
	var records []dns.RR
	if err == nil {
		records, err = signZone(&zone, bits)
	}
	if err != nil {
		in.err = err
	}
	return in.write("root.zone", func(w io.Writer) {
		for _, rr := range records {
			fmt.Fprintln(w, rr)
		}
	})
}

func (in *inputWriter) rootQuestions(zone string) string {
	var questions []rootzone.Question
	f, err := os.Open(zone)
	if err == nil {
		defer f.Close()
		questions, err = rootzone.Questions(f)
	}
	if err != nil && in.err == nil {
		in.err = err
	}
	return in.write("root", func(w io.Writer) {
		for _, q := range questions {
			fmt.Fprintln(w, q.Name, dns.Type(q.Type))
		}
	})
}

// wire is the work's questions as messages, the first n.
func (w work) wire(n int) ([][]byte, error) {
	f, err := os.Open(w.questions)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out [][]byte
	for s := bufio.NewScanner(f); s.Scan() && len(out) < n; {
		name, qtype, _ := strings.Cut(s.Text(), " ")
		m := new(dns.Msg).SetQuestion(name, dns.StringToType[qtype])
		m.RecursionDesired = false
		if w.do {
			m.SetEdns0(4096, true)
		}
		b, err := m.Pack()
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}
