package main

// alertCases are series with a sample each minute, for half an hour. {L stands for the labels that all have.
var alertCases = []struct {
	name, series   string
	alert, summary string // no alert fires if empty
}{
	{
		name: "healthy",
		series: `
			coredns_fastudp_received_total{L, socket="0"} 0+600000x30
			coredns_fastudp_received_total{L, socket="1"} 0+300000x30
			coredns_fastudp_dropped_total{L, socket="0", reason="inflight"} 0x30
			coredns_fastudp_dropped_total{L, socket="0", reason="unusual"} 0x30
			coredns_fastudp_dropped_total{L, socket="0", reason="panic"} 0x30
			coredns_fastudp_kernel_dropped_total{L, socket="0"} 0x30
			coredns_fastudp_inflight_queries{L, socket="0"} 100x30
			coredns_fastudp_inflight_limit_queries{L} 10000x30
			coredns_fastudp_read_buffer_bytes{L} 4194304x30
			coredns_fastudp_read_buffer_asked_bytes{L} 4194304x30
			coredns_fastudp_write_buffer_bytes{L} 212992x30`,
	},
	{name: "idle", series: `
			coredns_fastudp_received_total{L, socket="0"} 0x30
			coredns_fastudp_received_total{L, socket="1"} 0x30
			coredns_fastudp_dropped_total{L, socket="0", reason="inflight"} 0x30
			coredns_fastudp_kernel_dropped_total{L, socket="0"} 0x30`},

	{name: "one query in 100 dropped at max_inflight", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+5000x30
			coredns_fastudp_received_total{L, socket="1"} 0+5000x30
			coredns_fastudp_dropped_total{L, socket="0", reason="inflight"} 0+40x30
			coredns_fastudp_dropped_total{L, socket="1", reason="inflight"} 0+60x30`,
		alert: "FastudpQueriesDropped", summary: "ns1 dns://:53 drops 1% of its queries because max_inflight of them are in handlers."},
	{name: "one in 2000", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+10000x30
			coredns_fastudp_dropped_total{L, socket="0", reason="inflight"} 0+5x30`},
	{name: "dropped for a minute only", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+10000x30
			coredns_fastudp_dropped_total{L, socket="0", reason="inflight"} 0x27 500 500 500`},
	{name: "other reasons are no lost queries", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+10000x30
			coredns_fastudp_dropped_total{L, socket="0", reason="response"} 0+9000x30
			coredns_fastudp_dropped_total{L, socket="0", reason="short"} 0+9000x30
			coredns_fastudp_dropped_total{L, socket="0", reason="proxy"} 0+9000x30`},

	{name: "three quarters of max_inflight", series: `
			coredns_fastudp_inflight_queries{L, socket="0"} 5000x30
			coredns_fastudp_inflight_queries{L, socket="1"} 2500x30
			coredns_fastudp_inflight_limit_queries{L} 10000x30`,
		alert: "FastudpInflightNearLimit", summary: "ns1 dns://:53 has 75% of max_inflight queries in handlers. Soon it drops."},
	{name: "below half of max_inflight", series: `
			coredns_fastudp_inflight_queries{L, socket="0"} 2400x30
			coredns_fastudp_inflight_queries{L, socket="1"} 2400x30
			coredns_fastudp_inflight_limit_queries{L} 10000x30`},
	{name: "no max_inflight", series: `coredns_fastudp_inflight_queries{L, socket="0"} 900000x30`},

	{name: "unusual messages dropped", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+10000x30
			coredns_fastudp_dropped_total{L, socket="0", reason="unusual"} 0+120x30`,
		alert: "FastudpUnusualDropped", summary: "ns1 dns://:53 drops 2 messages/s because too many wait for the stock server."},
	{name: "an unusual message dropped now and then", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+10000x30
			coredns_fastudp_dropped_total{L, socket="0", reason="unusual"} 0+30x30`},

	{name: "one panic", series: `coredns_fastudp_dropped_total{L, socket="0", reason="panic"} 0x10 1x19`,
		alert: "FastudpParserPanic", summary: "ns1 dns://:53 received messages that no DNS parser survives. They were dropped, and the server is unharmed."},
	{name: "no panic", series: `coredns_fastudp_dropped_total{L, socket="0", reason="panic"} 3x30`},

	{name: "the kernel drops one of 20", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+9500x30
			coredns_fastudp_received_total{L, socket="1"} 0+9500x30
			coredns_fastudp_kernel_dropped_total{L, socket="0"} 0+1000x30
			coredns_fastudp_kernel_dropped_total{L, socket="1"} 0x30`,
		alert: "FastudpKernelDrops", summary: "ns1 dns://:53 loses 5% of its queries because a receive queue is full."},
	{name: "the kernel drops all", series: `
			coredns_fastudp_received_total{L, socket="0"} 0x30
			coredns_fastudp_kernel_dropped_total{L, socket="0"} 0+1000x30`,
		alert: "FastudpKernelDrops", summary: "ns1 dns://:53 loses 100% of its queries because a receive queue is full."},
	{name: "the kernel drops one in 2000", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+10000x30
			coredns_fastudp_kernel_dropped_total{L, socket="0"} 0+5x30`},
	{name: "the kernel's count from before a reload", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+10000x30
			coredns_fastudp_kernel_dropped_total{L, socket="0"} 777777x30`},

	{name: "one socket of four busy", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+1200000x30
			coredns_fastudp_received_total{L, socket="1"} 0+600000x30
			coredns_fastudp_received_total{L, socket="2"} 0+600000x30
			coredns_fastudp_received_total{L, socket="3"} 0+60000x30`,
		alert: "FastudpSocketsUneven", summary: "One socket of ns1 dns://:53 receives 20k queries/s, another one less than a tenth of it."},
	{name: "uneven at a low load", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+540000x30
			coredns_fastudp_received_total{L, socket="1"} 0x30`},
	{name: "busy and even enough", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+1200000x30
			coredns_fastudp_received_total{L, socket="1"} 0+180000x30`},
	{name: "one busy socket alone", series: `coredns_fastudp_received_total{L, socket="0"} 0+1200000x30`},

	{name: "read_buffer capped", series: `
			coredns_fastudp_read_buffer_bytes{L} 212992x30
			coredns_fastudp_read_buffer_asked_bytes{L} 4194304x30`,
		alert: "FastudpReadBufferCapped", summary: "ns1 dns://:53 has receive buffers of 208kiB, less than read_buffer asks for. A burst overflows them sooner."},
	{name: "read_buffer granted", series: `
			coredns_fastudp_read_buffer_bytes{L} 4194304x30
			coredns_fastudp_read_buffer_asked_bytes{L} 4194304x30`},

	{name: "write_buffer capped", series: `
			coredns_fastudp_write_buffer_bytes{L} 212992x30
			coredns_fastudp_write_buffer_asked_bytes{L} 4194304x30`,
		alert: "FastudpWriteBufferCapped", summary: "ns1 dns://:53 has send buffers of 208kiB, less than write_buffer asks for."},
	{name: "write_buffer not asked for", series: `coredns_fastudp_write_buffer_bytes{L} 4608x30`},

	{name: "one response in 20 refused", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+5000x30
			coredns_fastudp_received_total{L, socket="1"} 0+5000x30
			coredns_fastudp_send_errors_total{L, socket="0", error="EPERM"} 0+500x30
			coredns_fastudp_send_errors_total{L, socket="0", error="EINVAL"} 0+10x30`,
		alert: "FastudpSendErrors", summary: "The kernel refuses the responses to 5% of the queries of ns1 dns://:53: EPERM."},
	{name: "one response in 200 refused", series: `
			coredns_fastudp_received_total{L, socket="0"} 0+10000x30
			coredns_fastudp_send_errors_total{L, socket="0", error="EINVAL"} 0+50x30`},

	{name: "reading fails", series: `coredns_fastudp_receive_errors_total{L, socket="0", error="ENOMEM"} 0+600x30`,
		alert: "FastudpReceiveErrors", summary: "Reading from ns1 dns://:53 fails 10 times/s: ENOMEM."},
	{name: "reading failed once", series: `coredns_fastudp_receive_errors_total{L, socket="0", error="ENOMEM"} 0x10 1x19`},
}
