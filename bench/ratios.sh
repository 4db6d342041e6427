#!/usr/bin/env bash
# CPU time for each answered query, fastudp against the stock listener, on one core.
#
#	bench/ratios.sh [ROUNDS [SECONDS]]
#
# The server runs on CPU 0 with GOMAXPROCS=1, dnsperf and the upstream on CPU 1. The rounds of the
# two listeners alternate. Prints each run and the medians with their ratio. Needs dnsperf.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5} secs=${2:-4}
command -v dnsperf >/dev/null || { echo "dnsperf is missing: apt-get install dnsperf" >&2; exit 1; }
tmp=$(mktemp -d)
upstream= server=
trap 'kill $upstream $server 2>/dev/null || true; rm -rf "$tmp"' EXIT
go build -o "$tmp/coredns" ./cmd/coredns
go run ./internal/rootzone/cmd -o "$tmp/zone" -questions "$tmp/q.file"
echo "whoami.test A" >"$tmp/q.whoami"
seq 1000 | sed 's/.*/n&.example.org A/' >"$tmp/q.cache"
seq 200000 | sed 's/.*/m&.example.org A/' >"$tmp/q.miss"

port=$((20000 + RANDOM % 20000))
conf() { # conf NAME PLUGINS
    local i=0 v
    for v in stock fastudp; do
        printf '.:%d {\nbind 127.0.0.1\n%s\n%b\n}\n' $((port + i)) "$([ $v = fastudp ] && echo 'fastudp 1')" "$2" >"$tmp/$1.$v"
        i=$((i + 1))
    done
}
conf whoami 'whoami'
conf file "file $tmp/zone"
conf cache "cache\nforward . 127.0.0.1:$((port + 9))"
conf miss "forward . 127.0.0.1:$((port + 9))"
printf '.:%d {\nbind 127.0.0.1\nerratic {\ndrop 0\ntruncate 0\ndelay 1 20ms\n}\n}\n' $((port + 9)) >"$tmp/upstream"
taskset -c 1 "$tmp/coredns" -quiet -conf "$tmp/upstream" >/dev/null 2>&1 &
upstream=$!

load() { taskset -c 1 dnsperf -s 127.0.0.1 -p "$2" -d "$tmp/q.$1" -c 4 -q 1000 -t 0.5 -b 4096 -l "$3" 2>/dev/null; }
ticks() { awk '{print $14 + $15}' "/proc/$1/stat"; }
run() { # run WORK LISTENER PORT
    GOMAXPROCS=1 taskset -c 0 "$tmp/coredns" -quiet -conf "$tmp/$1.$2" >"$tmp/log" 2>&1 &
    server=$!
    sleep 1
    load "$1" "$3" 1 >/dev/null
    local before after out
    before=$(ticks $server)
    out=$(load "$1" "$3" "$secs")
    after=$(ticks $server)
    kill $server
    wait $server 2>/dev/null || true
    server=
    echo "$out" | awk -v work="$1" -v listener="$2" -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" '
        /Queries completed/ {n = $3} /Queries lost/ {lost = $3} /Queries per second/ {qps = $4}
        END {printf "%-7s %-8s %6.2f us/query %8.0f q/s %6d lost\n", work, listener, ticks / hz * 1e6 / n, qps, lost}' | tee -a "$tmp/all"
}
for _ in $(seq "$rounds"); do
    for work in whoami file cache miss; do
        run $work stock $port
        run $work fastudp $((port + 1))
    done
done
median() { awk -v w="$1" -v l="$2" '$1 == w && $2 == l {print $3}' "$tmp/all" | sort -n | awk '{v[NR] = $1} END {print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
echo
for work in whoami file cache miss; do
    s=$(median $work stock) f=$(median $work fastudp)
    awk -v w=$work -v s="$s" -v f="$f" 'BEGIN {printf "%-7s stock %6.2f fastudp %6.2f us/query, ratio %.2f\n", w, s, f, f / s}'
done
