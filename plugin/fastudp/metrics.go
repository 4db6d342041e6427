package fastudp

import (
	"slices"
	"strconv"

	"github.com/coredns/coredns/plugin"

	"github.com/prometheus/client_golang/prometheus"
)

func init() { prometheus.MustRegister(collector{}) }

// collector reads the counters of all sockets that serve when somebody asks. It is registered where
// CoreDNS's prometheus plugin looks.
type collector struct{}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(plugin.Namespace, "fastudp", name), help, append([]string{"server", "socket"}, labels...), nil)
}

var (
	receivedDesc    = desc("received_total", "Datagrams received.")
	readsDesc       = desc("reads_total", "Reads that returned one or more datagrams.")
	sentDesc        = desc("responses_total", "Responses that the kernel took.")
	sendsDesc       = desc("sends_total", "System calls that sent one or more responses.")
	pausesDesc      = desc("pauses_total", "Times that a busy socket gave others their turn at the fairness cap.")
	standbysDesc    = desc("standbys_total", "Workers readied to go on if a handler blocks.")
	spawnedDesc     = desc("workers_started_total", "Workers started.")
	inflightDesc    = desc("inflight_queries", "Queries in handlers now.")
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
		receivedDesc, readsDesc, sentDesc, sendsDesc, pausesDesc, standbysDesc, spawnedDesc, inflightDesc,
		dropsDesc, unusualDesc, sendErrorsDesc, recvErrorsDesc, kernelDropsDesc, kernelBytesDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. While a reload replaces a listener both serve, and the
// newer one has the series.
func (collector) Collect(ch chan<- prometheus.Metric) {
	seen := make(map[string]bool)
	for _, l := range slices.Backward(live.list()) {
		name := l.name()
		for i, e := range l.engines {
			socket := strconv.Itoa(l.firstSocket + i)
			if !seen[name+" "+socket] {
				seen[name+" "+socket] = true
				e.collect(ch, name, socket)
			}
		}
	}
}

func (e *engine) collect(ch chan<- prometheus.Metric, server, socket string) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{server, socket}, labels...)...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, server, socket)
	}
	c := e.count
	counter(receivedDesc, c.received.Load())
	counter(readsDesc, c.reads.Load())
	counter(sentDesc, c.sent.Load())
	counter(sendsDesc, c.sends.Load())
	counter(pausesDesc, c.pauses.Load())
	counter(standbysDesc, c.standbys.Load())
	counter(spawnedDesc, c.spawned.Load())
	gauge(inflightDesc, float64(e.inflight()))
	for d := range numDrops {
		counter(dropsDesc, c.drops[d].Load(), d.String())
	}
	for u := range numUnusual {
		counter(unusualDesc, c.unusual[u].Load(), u.String())
	}
	c.mu.Lock()
	for name, n := range c.sendErrs {
		counter(sendErrorsDesc, n, name)
	}
	for name, n := range c.recvErrs {
		counter(recvErrorsDesc, n, name)
	}
	c.mu.Unlock()
	if drops, bytes, ok := kernelQueue(e.io.conn()); ok {
		counter(kernelDropsDesc, drops)
		gauge(kernelBytesDesc, float64(bytes))
	}
}
