// Command monitoring prints the Grafana dashboard of fastudp, docs/grafana.json. Its tests check
// the dashboard and the alert rules, docs/alerts.yaml, against what fastudp exports.
package main

//lint:file-ignore SA1019 every Grafana imports the classic schema, only new ones the next

import (
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

func main() {
	text, err := dashboardJSON()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", text)
}

func dashboardJSON() ([]byte, error) {
	d, err := build()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

// source is the Prometheus that the variable of this name chooses.
var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

func build() (dashboard.Dashboard, error) {
	b := dashboard.NewDashboardBuilder("CoreDNS fastudp").
		Uid("fastudp").
		Description("The UDP listeners that fastudp serves. Read it from the top: queries, losses, then why.").
		Tags([]string{"coredns", "dns", "fastudp"}).
		Time("now-1h", "now").
		Refresh("30s").
		Timezone(common.TimeZoneBrowser).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		WithVariable(variable("job", "Job", `label_values(coredns_fastudp_received_total, job)`)).
		WithVariable(variable("instance", "Instance", `label_values(coredns_fastudp_received_total{job=~"$job"}, instance)`)).
		WithVariable(variable("server", "Server", `label_values(coredns_fastudp_received_total{job=~"$job", instance=~"$instance"}, server)`))
	traffic(b)
	losses(b)
	batching(b)
	queue(b)
	process(b)
	options(b)
	d, err := b.Build()
	for i, p := range d.Panels {
		if id := uint32(i + 1); p.RowPanel != nil {
			p.RowPanel.Id = id
		} else {
			p.Panel.Id = &id
		}
	}
	return d, err
}

func variable(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).
		Datasource(source).
		Query(dashboard.StringOrMap{String: &query}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortNaturalAsc).
		Multi(true).IncludeAll(true).AllValue(".+").
		Current(dashboard.VariableOption{
			Text:  dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value: dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
}

func traffic(b *dashboard.DashboardBuilder) {
	b.WithRow(dashboard.NewRowBuilder("Traffic"))
	b.WithPanel(graph("Queries and responses", units.RequestsPerSecond,
		"Datagrams received and responses sent. If responses stay behind, see the row Losses.",
		query{perSecond("server", "received_total"), "{{instance}} {{server}} received"},
		query{perSecond("server", "responses_total"), "{{instance}} {{server}} responses"}).Span(8))
	b.WithPanel(graph("Queries by socket", units.RequestsPerSecond,
		"The kernel picks the socket by a hash of addresses and ports. If few clients send most of the queries, so that one socket is busy and others idle, set steer random.",
		query{perSecond("server, socket", "received_total"), "{{instance}} {{server}} socket {{socket}}"}).Span(8))
	b.WithPanel(graph("Messages for the stock server", units.RequestsPerSecond,
		"Messages that are not ordinary queries take the slower path of CoreDNS's own server. Many malformed ones are an attack or a broken client.",
		query{perSecond("server, reason", "unusual_total"), "{{instance}} {{server}} {{reason}}"}).Span(8))
}

func losses(b *dashboard.DashboardBuilder) {
	b.WithRow(dashboard.NewRowBuilder("Losses"))
	b.WithPanel(graph("Dropped by fastudp", units.RequestsPerSecond,
		"inflight: max_inflight queries were in handlers; see whether an upstream is slow, or raise max_inflight. unusual: too many messages wait for the stock server. panic: please report it. short, response and proxy are no queries, or came around the proxy.",
		query{perSecond("server, reason", "dropped_total"), "{{instance}} {{server}} {{reason}}"}).Span(8))
	b.WithPanel(graph("Dropped by the kernel", units.RequestsPerSecond,
		"The receive queue was full. Give the process more CPUs if it has none left, and SOCKETS follows; else raise read_buffer. If it is one socket alone, set steer random. (Linux)",
		query{perSecond("server, socket", "kernel_dropped_total"), "{{instance}} {{server}} socket {{socket}}"}).Span(8))
	b.WithPanel(graph("Errors of sending and receiving", units.RequestsPerSecond,
		"EINVAL: clients with source port 0, an attack. EPERM: a packet filter, or its connection table is full. ENOBUFS: the interface's transmit queue is full. ENETUNREACH, EHOSTUNREACH: no route to the client.",
		query{perSecond("server, error", "send_errors_total"), "{{instance}} {{server}} send {{error}}"},
		query{perSecond("server, error", "receive_errors_total"), "{{instance}} {{server}} receive {{error}}"}).
		NoValue("no error yet").Span(8))
}

func batching(b *dashboard.DashboardBuilder) {
	b.WithRow(dashboard.NewRowBuilder("Batching"))
	b.WithPanel(graph("Messages for each system call", units.Number,
		"1 at low load. It grows with the load and makes each query cheaper; near batch the server is saturated.",
		query{perSecond("server", "received_total") + " / " + perSecond("server", "reads_total"), "{{instance}} {{server}} read"},
		query{perSecond("server", "responses_total") + " / " + perSecond("server", "sends_total"), "{{instance}} {{server}} send"}).Span(8))
	b.WithPanel(heat("Reads by their queries",
		"How many queries a read returned. Two bands mean bursts; if the upper one is at batch, raise batch or read_buffer.", "read_messages_bucket"))
	b.WithPanel(heat("Sends by their responses",
		"How many responses a system call sent. Fewer than the reads returned: the handlers wait, and their responses leave one by one.", "send_messages_bucket"))
	b.WithPanel(graph("Pauses at the fairness cap", units.OpsPerSecond,
		"A socket had more than fairness_cap queries ready without a gap and let others have their turn. Many pauses mean a saturated socket: add CPUs, and SOCKETS follows.",
		query{perSecond("server, socket", "pauses_total"), "{{instance}} {{server}} socket {{socket}}"}).Span(8))
	b.WithPanel(graph("Waits for the send buffer", units.OpsPerSecond,
		"The kernel's send buffer was full, so that reading waited too. Raise write_buffer, or see whether the interface is saturated.",
		query{perSecond("server, socket", "send_waits_total"), "{{instance}} {{server}} socket {{socket}}"}).Span(8))
	b.WithPanel(graph("Workers", units.OpsPerSecond,
		"A standby is readied for each batch, and for each handler that blocks. Workers started again and again mean that the number of blocked handlers swings: see Queries in handlers.",
		query{perSecond("server", "standbys_total"), "{{instance}} {{server}} standbys"},
		query{perSecond("server", "workers_started_total"), "{{instance}} {{server}} started"}).Span(8))
}

func queue(b *dashboard.DashboardBuilder) {
	b.WithRow(dashboard.NewRowBuilder("Queue and in flight"))
	b.WithPanel(graph("Receive queue", units.BytesIEC,
		"Kernel memory of the queries that wait to be read, for each socket. At the limit, twice read_buffer, the kernel drops. A queue that stays long means too little CPU: add some, and SOCKETS follows. (Linux)",
		query{series("kernel_queue_bytes"), "{{instance}} {{server}} socket {{socket}}"},
		query{"2 * " + series("read_buffer_bytes"), "{{instance}} {{server}} limit"}))
	b.WithPanel(graph("Queries in handlers", units.Number,
		"Most of them wait for an upstream. At the limit, max_inflight, new ones are dropped, but for a sixteenth more of names that were answered lately: see whether the upstream is slow. The peak is the sum of the sockets' highest since the start or the last reload.",
		query{fmt.Sprintf("sum by (job, instance, server) (%s)", series("inflight_queries")), "{{instance}} {{server}} now"},
		query{fmt.Sprintf("sum by (job, instance, server) (%s)", series("inflight_peak_queries")), "{{instance}} {{server}} peak"},
		query{series("inflight_limit_queries"), "{{instance}} {{server}} limit"}))
}

func process(b *dashboard.DashboardBuilder) {
	cpu := `sum by (job, instance) (rate(process_cpu_seconds_total{job=~"$job", instance=~"$instance"}[$__rate_interval]))`
	all := `sum by (job, instance) (rate(coredns_fastudp_received_total{job=~"$job", instance=~"$instance"}[$__rate_interval]))`
	gauge := func(name string) string { return name + `{job=~"$job", instance=~"$instance"}` }

	b.WithRow(dashboard.NewRowBuilder("CPU"))
	b.WithPanel(graph("CPU time for each query", units.Seconds,
		"CPU time of the whole process for each query that fastudp received. It falls as the load grows; more than before at the same load is a slower plugin or a colder cache.",
		query{cpu + " / on (job, instance) " + all, "{{instance}}"}))
	b.WithPanel(graph("CPUs in use", units.Number,
		"At GOMAXPROCS the process is saturated: give it CPUs.",
		query{cpu, "{{instance}} in use"},
		query{gauge("go_sched_gomaxprocs_threads"), "{{instance}} GOMAXPROCS"}))

	b.WithRow(dashboard.NewRowBuilder("Memory"))
	b.WithPanel(graph("Memory", units.BytesIEC,
		"Bounded by the options: see Memory in the README. Growth with Queries in handlers is bounded by max_inflight; the kernel's buffers are not in it.",
		query{gauge("process_resident_memory_bytes"), "{{instance}} resident"},
		query{gauge("go_memstats_heap_inuse_bytes"), "{{instance}} heap"},
		query{gauge("go_memstats_stack_inuse_bytes"), "{{instance}} stacks"}))
	b.WithPanel(graph("Goroutines", units.Number,
		"One for each handler that waits, and the idle workers. If it grows while Queries in handlers does not, a plugin leaks.",
		query{gauge("go_goroutines"), "{{instance}}"}))
}

func options(b *dashboard.DashboardBuilder) {
	b.WithRow(dashboard.NewRowBuilder("Options"))
	b.WithPanel(table.NewPanelBuilder().Title("Options").
		Description("The options of each listener as they are in force, the buffers as the system granted them. If a buffer is smaller than asked, raise net.core.rmem_max or net.core.wmem_max, or give the process CAP_NET_ADMIN.").
		Datasource(source).Span(24).Height(8).
		Footer(common.NewTableFooterOptionsBuilder().Reducer([]string{})). // the schema wants one
		WithTarget(target(0, query{expr: series("info")}).Instant().Format(prometheus.PromQueryFormatTable)).
		WithTransformation(hideColumns("Time", "Value", "__name__")))
}

// series selects the fastudp metric of this name by the variables and by more matchers.
func series(name string, matchers ...string) string {
	matchers = append([]string{`job=~"$job"`, `instance=~"$instance"`, `server=~"$server"`}, matchers...)
	return "coredns_fastudp_" + name + "{" + strings.Join(matchers, ", ") + "}"
}

func perSecond(by, name string) string {
	return fmt.Sprintf("sum by (job, instance, %s) (rate(%s[$__rate_interval]))", by, series(name))
}

type query struct{ expr, legend string }

func target(i int, q query) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(source).RefId(string(rune('A' + i))).Expr(q.expr).LegendFormat(q.legend)
}

// graph is a panel of half the width. Its description says what to do about what it shows.
func graph(title, unit, description string, queries ...query) *timeseries.PanelBuilder {
	p := timeseries.NewPanelBuilder().Title(title).Description(description).Unit(unit).
		Datasource(source).Span(12).Height(8).
		Min(0).FillOpacity(10).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	for i, q := range queries {
		p.WithTarget(target(i, q).Range())
	}
	return p
}

// heat is a panel of how many messages the system calls took, over time.
func heat(title, description, name string) *heatmap.PanelBuilder {
	return heatmap.NewPanelBuilder().Title(title).Description(description).
		Datasource(source).Span(8).Height(8).
		Tooltip(heatmap.NewHeatmapTooltipBuilder().Mode(common.TooltipDisplayModeSingle)).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(units.Number)).
		WithTarget(target(0, query{fmt.Sprintf("sum by (le) (increase(%s[$__rate_interval]))", series(name)), "{{le}}"}).
			Range().Format(prometheus.PromQueryFormatHeatmap))
}

func hideColumns(names ...string) dashboard.DataTransformerConfig {
	hidden := make(map[string]bool)
	for _, n := range names {
		hidden[n] = true
	}
	return dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{"excludeByName": hidden}}
}
