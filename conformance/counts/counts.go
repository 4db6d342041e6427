// Package counts brings the number of messages that fastudp received out of a test's process, which
// may be killed, may start others of its kind, and knows nothing of all this.
package counts

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Env names the variable that tells a test's process the directory to write its count to, as a file
// of its own. Without it nothing is recorded.
const Env = "FASTUDP_CONFORMANCE_COUNTS"

// Metric is the counter that is recorded, summed over its labels.
const Metric = "coredns_fastudp_received_total"

// interval is how often a process looks at its metrics: what a process received since is lost if it
// ends by other means than returning from its tests.
const interval = 50 * time.Millisecond

// Recorder writes the count of this process.
type Recorder struct {
	file     string
	gatherer prometheus.Gatherer

	mu      sync.Mutex
	tally   tally
	written uint64
}

// Start records what g counts for as long as the process lives. It returns nil, of which Flush is
// fine, if the environment does not ask for it.
func Start(g prometheus.Gatherer) *Recorder {
	dir := os.Getenv(Env)
	if dir == "" {
		return nil
	}
	r := newRecorder(dir, g)
	go func() {
		for range time.Tick(interval) {
			r.Flush()
		}
	}()
	return r
}

func newRecorder(dir string, g prometheus.Gatherer) *Recorder {
	return &Recorder{file: filepath.Join(dir, strconv.Itoa(os.Getpid())), gatherer: g, tally: tally{}}
}

// Flush brings the file up to date.
func (r *Recorder) Flush() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tally.observe(read(r.gatherer))
	if total := r.tally.total(); total != r.written && write(r.file, total) == nil {
		r.written = total
	}
}

// write replaces the file in one step: the process may be killed at any time.
func write(file string, n uint64) error {
	part := file + partSuffix
	if err := os.WriteFile(part, strconv.AppendUint(nil, n, 10), 0o644); err != nil {
		return err
	}
	return os.Rename(part, file)
}

const partSuffix = ".part"

// Sum adds up what the processes wrote to dir.
func Sum(dir string) (total uint64, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == partSuffix {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("count in %s: %w", e.Name(), err)
		}
		total += n
	}
	return total, nil
}
