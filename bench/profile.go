package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// profileSeconds is how long each work is profiled: by default 100 samples a second.
const profileSeconds = 10

// profile has fastudp do what section cpu has it do, and writes where it spends its CPU time to file, for
// the compiler: profile-guided optimisation, https://go.dev/doc/pgo.
func (b *bench) profile(ctx context.Context, file string) error {
	var parts []string
	for _, w := range b.works("whoami", "file", "hits", "miss-10%", "root", "root-do", "root-cache", "kubernetes") {
		for _, s := range b.pick(fastudpName) {
			part, err := b.profileOf(ctx, s, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			parts = append(parts, part)
		}
	}
	return command(ctx, append([]string{"go", "tool", "pprof", "-proto", "-output", file}, parts...)...)
}

// profileOf profiles one work and returns the file with it.
func (b *bench) profileOf(ctx context.Context, s server, w work) (string, error) {
	p := place{host: "127.0.0.1", cpus: b.cpus.one}
	var port int
	for _, to := range []*int{&p.port, &p.metrics, &p.spare, &port} {
		n, err := freePort()
		if err != nil {
			return "", err
		}
		*to = n
	}
	addr := fmt.Sprintf("%s:%d", p.host, port)
	w.plugins += "\npprof " + addr
	c, err := b.start(ctx, s, p, w)
	if err != nil {
		return "", err
	}
	defer c.Stop() // it ends by the signal, which Stop calls an error
	if w.fill != "" {
		if _, err := dnsperf(ctx, p, w, 1, 10*time.Second, w.fill, true); err != nil {
			return "", err
		}
	}
	asked := make(chan error, 1)
	go func() {
		o, err := dnsperf(ctx, p, w, 4, (profileSeconds+2)*time.Second, w.questions, false)
		fmt.Printf("%s: %d queries answered\n", w.name, o.Answered)
		asked <- err
	}()
	file := filepath.Join(b.dir, w.name+".pprof")
	err = fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", addr, profileSeconds), file)
	if asked := <-asked; err == nil {
		err = asked
	}
	return file, err
}

func fetch(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}
