#!/bin/sh
# Runs fuzzers and prints a line for each:
#
#   tests/fuzz/run.sh BUILD SECONDS [TARGET...]
#
# BUILD is a build of the preset `asan`; SECONDS are for each target, all of them if none is named.
# JOBS=N runs N of them at a time, one if it is not set.
# New inputs are kept in BUILD/fuzz-corpus/TARGET and used again the next time; what a target fell
# over lies in BUILD/fuzz-findings. Ends with 1 where there is a finding, 2 where nothing could run.
set -u

build=${1:-}
seconds=${2:-}
case $seconds in
  '' | *[!0-9]*)
    echo "usage: $0 BUILD SECONDS [TARGET...]" >&2
    exit 2 ;;
esac
shift 2
here=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- $(ls "$here/corpus")
row='%-8s %12s %9s %7s %6s  %s\n'
if [ $# -gt 1 ]; then
  printf "$row" target executions exec/s edges new result
  printf '%s\n' "$@" | xargs -P "${JOBS:-1}" -n 1 sh "$0" "$build" "$seconds"
  exit
fi

# Debian's capnp and kj are built without sanitizers, so vectors that cross over look overfull.
# Short stacks of allocations and plain scheduling leave more of the time for inputs.
ASAN_OPTIONS=detect_container_overflow=0:quarantine_size_mb=16:malloc_context_size=4
UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS UBSAN_OPTIONS

# The longest input that means more than a shorter one.
length_of() {
  case $1 in
    attach) echo 512 ;;
    page | config) echo 2048 ;;
    *) echo 4096 ;;
  esac
}

# "stat::name: value" of a log.
stat_of() { sed -n "s/^stat::$2: *//p" "$1"; }

# Edges covered, as the last line of progress says.
edges_of() { sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$1" | tail -1; }

target=$1
binary=$build/bin/fuzz_$target
if [ ! -x "$binary" ]; then
  echo "$binary is not there: build fuzz_targets with the preset asan" >&2
  exit 2
fi
work=$build/fuzz-corpus/$target
found=$build/fuzz-findings
log=$work.log
mkdir -p "$work" "$found"
words=$here/dict/$target.dict
[ -f "$words" ] && words=-dict=$words || words=
"$binary" ${words:+"$words"} -max_total_time="$seconds" -max_len="$(length_of "$target")" \
  -rss_limit_mb=1024 -malloc_limit_mb=256 -timeout=10 -print_final_stats=1 -entropic=0 \
  -artifact_prefix="$found/$target-" "$work" "$here/corpus/$target" >"$log" 2>&1
ended=$?
result=ok
[ $ended -eq 0 ] || result="FOUND (exit $ended)"
printf "$row" "$target" "$(stat_of "$log" number_of_executed_units)" \
  "$(stat_of "$log" average_exec_per_sec)" "$(edges_of "$log")" \
  "$(stat_of "$log" new_units_added)" "$result"
[ $ended -eq 0 ] && exit
grep -E '^broken promise|check failed|runtime error|^SUMMARY|ERROR: ' "$log" | head -5 |
  sed 's/^/  /'
input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
echo "  log:    $log"
[ -z "$input" ] || echo "  input:  $input"
[ -z "$input" ] || echo "  replay: ASAN_OPTIONS=$ASAN_OPTIONS $binary $input"
exit 1
