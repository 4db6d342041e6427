package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"time"

	"github.com/google/pprof/profile"
)

// profileSeconds is how long each work is profiled: by default 100 samples a second.
const profileSeconds = 10

// writeProfile has fastudp do what section cpu has it do, but for two of the misses, and writes where it spends its CPU time to file, for
// the compiler: profile-guided optimisation, https://go.dev/doc/pgo.
func (b *bench) writeProfile(ctx context.Context, file string) error {
	var parts []*profile.Profile
	for _, w := range b.works("whoami", "file", "hits", "miss-10%", "root", "root-do", "root-cache", "kubernetes") {
		for _, s := range b.pick(fastudpName) {
			part, err := b.profileOf(ctx, s, w)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			parts = append(parts, part)
		}
	}
	all, err := profile.Merge(parts)
	if err != nil {
		return err
	}
	forget(all)
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(all.Write(f), f.Close())
}

// forget takes out what the compiler does not read and what tells of the machine: where sources and the program are.
func forget(p *profile.Profile) {
	for _, m := range p.Mapping {
		m.File = path.Base(m.File)
	}
	for _, f := range p.Function {
		f.Filename = path.Base(f.Filename)
	}
}

// profileOf profiles one work.
func (b *bench) profileOf(ctx context.Context, s server, w work) (*profile.Profile, error) {
	p := place{host: "127.0.0.1", cpus: b.cpus.one}
	var port int
	for _, to := range []*int{&p.port, &p.metrics, &p.spare, &port} {
		n, err := freePort()
		if err != nil {
			return nil, err
		}
		*to = n
	}
	addr := fmt.Sprintf("%s:%d", p.host, port)
	w.plugins += "\npprof " + addr
	c, err := b.start(ctx, s, p, w)
	if err != nil {
		return nil, err
	}
	defer c.Stop() // it ends by the signal, which Stop calls an error
	if w.fill != "" {
		if _, err := dnsperf(ctx, p, w, 1, 10*time.Second, w.fill, true); err != nil {
			return nil, err
		}
	}
	asked := make(chan error, 1)
	go func() {
		o, err := dnsperf(ctx, p, w, 4, (profileSeconds+2)*time.Second, w.questions, false)
		fmt.Printf("%s: %d queries answered\n", w.name, o.Answered)
		asked <- err
	}()
	part, err := fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", addr, profileSeconds))
	if asked := <-asked; err == nil {
		err = asked
	}
	return part, err
}

func fetch(ctx context.Context, url string) (*profile.Profile, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return profile.Parse(resp.Body)
}
