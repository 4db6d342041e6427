// Command ask puts one question to a DNS server over UDP and prints the answer, for those who have no dig.
//
//	go run ./internal/ask [-s ADDRESS:PORT] TYPE NAME
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/miekg/dns"
)

func main() {
	server := flag.String("s", "127.0.0.1:1053", "address and port of the server")
	flag.Parse()
	if err := ask(*server, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
		os.Exit(1)
	}
}

func ask(server string, args []string) error {
	if len(args) != 2 {
		return errors.New("want a type and a name, as in: NS rootlike")
	}
	qtype, ok := dns.StringToType[strings.ToUpper(args[0])]
	if !ok {
		return fmt.Errorf("unknown type %q", args[0])
	}
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(args[1]), qtype)
	q.SetEdns0(1232, false)
	r, _, err := new(dns.Client).Exchange(q, server)
	if err != nil {
		return err
	}
	fmt.Println(r)
	return nil
}
