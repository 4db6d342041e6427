package fastudp

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"

	"github.com/coredns/coredns/plugin"

	"github.com/prometheus/client_golang/prometheus"
)

func init() { prometheus.MustRegister(collector{}) }

// collector reads the counters of all sockets that serve when somebody asks. It is registered where
// CoreDNS's prometheus plugin looks.
type collector struct{}

// serverDesc describes a metric of a listen address, desc one of each of its sockets.
func serverDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "fastudp", name), help, append([]string{"server"}, labels...), nil)
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return serverDesc(name, help, append([]string{"socket"}, labels...)...)
}

var (
	infoDesc = serverDesc("info", "Always 1; the labels have the versions and the options in force.",
		"version", "goversion", "sockets", "batch", "fairness_cap", "steer", "max_inflight", "read_buffer", "write_buffer", "gc_growth")
	socketsDesc       = serverDesc("sockets", "Sockets that serve the address.")
	inflightLimitDesc = serverDesc("inflight_limit_queries", "Queries that may be in handlers at once, max_inflight; absent without a bound.")
	readBufferDesc    = serverDesc("read_buffer_bytes", "Receive buffer of each socket that the system granted.")
	readAskedDesc     = serverDesc("read_buffer_asked_bytes", "Receive buffer of each socket that read_buffer asked for; absent if it is not set.")
	writeBufferDesc   = serverDesc("write_buffer_bytes", "Send buffer of each socket that the system granted.")
	writeAskedDesc    = serverDesc("write_buffer_asked_bytes", "Send buffer of each socket that write_buffer asked for; absent if it is not set.")

	receivedDesc    = desc("received_total", "Datagrams received.")
	readsDesc       = desc("reads_total", "Reads that returned one or more datagrams.")
	readSizesDesc   = desc("read_messages", "Datagrams that a read returned, of the reads that returned one or more.")
	sentDesc        = desc("responses_total", "Responses that the kernel took.")
	sendsDesc       = desc("sends_total", "System calls that sent one or more responses.")
	sendSizesDesc   = desc("send_messages", "Responses that a system call sent, of the calls that sent one or more.")
	waitsDesc       = desc("send_waits_total", "Times that sending waited because the send buffer was full.")
	pausesDesc      = desc("pauses_total", "Times that a busy socket gave others their turn at the fairness cap.")
	standbysDesc    = desc("standbys_total", "Workers readied to go on if a handler blocks.")
	spawnedDesc     = desc("workers_started_total", "Workers started.")
	inflightDesc    = desc("inflight_queries", "Queries in handlers now.")
	peakDesc        = desc("inflight_peak_queries", "Most queries in handlers at once since the listener began, sampled when all datagrams of a read have been taken.")
	dropsDesc       = desc("dropped_total", "Datagrams that got no answer, by reason.", "reason")
	unusualDesc     = desc("unusual_total", "Messages given to the stock server, by reason.", "reason")
	sendErrorsDesc  = desc("send_errors_total", "Responses that the kernel refused, by error.", "error")
	recvErrorsDesc  = desc("receive_errors_total", "Reads that failed, by error.", "error")
	kernelDropsDesc = desc("kernel_dropped_total", "Datagrams that the kernel dropped because the receive queue was full.")
	kernelBytesDesc = desc("kernel_queue_bytes", "Memory of the receive queue in use now.")
)

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		infoDesc, socketsDesc, inflightLimitDesc, readBufferDesc, readAskedDesc, writeBufferDesc, writeAskedDesc,
		receivedDesc, readsDesc, readSizesDesc, sentDesc, sendsDesc, sendSizesDesc, waitsDesc,
		pausesDesc, standbysDesc, spawnedDesc, inflightDesc, peakDesc,
		dropsDesc, unusualDesc, sendErrorsDesc, recvErrorsDesc, kernelDropsDesc, kernelBytesDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. While a reload replaces a listener both serve, and the
// newer one has the series.
func (collector) Collect(ch chan<- prometheus.Metric) {
	newest := live.list()
	slices.Reverse(newest)
	sockets := make(map[string]map[int]bool) // by server, those that have been collected
	for _, l := range newest {
		name := l.name()
		if sockets[name] == nil {
			sockets[name] = make(map[int]bool)
		}
		for i, e := range l.engines {
			if socket := l.firstSocket + i; !sockets[name][socket] {
				sockets[name][socket] = true
				e.collect(ch, name, strconv.Itoa(socket))
			}
		}
	}
	for _, l := range newest {
		if name := l.name(); sockets[name] != nil {
			l.collect(ch, name, len(sockets[name]))
			delete(sockets, name) // the other servers of a multisocket have the same options
		}
	}
}

// collect tells what is the same for all sockets of the address.
func (l *listener) collect(ch chan<- prometheus.Metric, server string, sockets int) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), append([]string{server}, labels...)...)
	}
	granted := func(k bufferKind, option int, got, asked *prometheus.Desc) string {
		if option > 0 {
			gauge(asked, option)
		}
		size, ok := bufferSize(l.engines[0].io.conn(), k)
		if !ok {
			return "unknown"
		}
		gauge(got, size)
		return strconv.Itoa(size)
	}
	read, write := granted(readBuffer, l.opts.ReadBuffer, readBufferDesc, readAskedDesc), granted(writeBuffer, l.opts.WriteBuffer, writeBufferDesc, writeAskedDesc)
	gauge(socketsDesc, sockets)
	if l.opts.MaxInflight > 0 {
		gauge(inflightLimitDesc, l.opts.MaxInflight)
	}
	gauge(infoDesc, 1, version(), runtime.Version(), strconv.Itoa(sockets), strconv.Itoa(l.batch()), strconv.Itoa(l.opts.FairnessCap),
		string(l.steering.inForce()), strconv.Itoa(l.opts.MaxInflight), read, write, strconv.Itoa(pace.inForce()))
}

// version is this module's as the Go command recorded it: in CoreDNS a dependency, here the main module.
var version = sync.OnceValue(func() string {
	const path = "github.com/fastudp/fastudp"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != path {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version != "" {
			return m.Version
		}
	}
	return "unknown"
})

func (e *engine) collect(ch chan<- prometheus.Metric, server, socket string) {
	with := func(labels []string) []string { return append([]string{server, socket}, labels...) }
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), with(labels)...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, with(nil)...)
	}
	histogram := func(d *prometheus.Desc, s *sizes, messages uint64) (calls uint64) {
		buckets, calls := s.upTo()
		ch <- prometheus.MustNewConstHistogram(d, calls, float64(messages), buckets, with(nil)...)
		return calls
	}
	c := e.count
	received, sent := c.received.Load(), c.sent.Load()
	counter(receivedDesc, received)
	counter(readsDesc, histogram(readSizesDesc, &c.reads, received))
	counter(sentDesc, sent)
	counter(sendsDesc, histogram(sendSizesDesc, &c.sends, sent))
	counter(waitsDesc, c.waits.Load())
	counter(pausesDesc, c.pauses.Load())
	counter(standbysDesc, c.standbys.Load())
	counter(spawnedDesc, c.spawned.Load())
	gauge(inflightDesc, float64(e.inflight()))
	gauge(peakDesc, float64(c.peak.Load()))
	for d := range numDrops {
		counter(dropsDesc, c.drops[d].Load(), d.String())
	}
	for u := range numUnusual {
		counter(unusualDesc, c.unusual[u].Load(), u.String())
	}
	sendErrs, recvErrs := c.errors()
	for name, n := range sendErrs {
		counter(sendErrorsDesc, n, name)
	}
	for name, n := range recvErrs {
		counter(recvErrorsDesc, n, name)
	}
	if drops, bytes, ok := kernelQueue(e.io.conn()); ok {
		counter(kernelDropsDesc, drops)
		gauge(kernelBytesDesc, float64(bytes))
	}
}
