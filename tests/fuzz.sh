#!/usr/bin/env bash
# Feeds every parser with inputs that clang's libFuzzer makes, and prints executions, coverage and crashes.
# Continues from the inputs that earlier calls found; needs clang 14 and its run-time library (libclang-rt-14-dev).
# Usage: tests/fuzz.sh [--minutes M] [--no-build] [PARSER...]
#   --minutes M  for each parser, a whole number (1)
#   --no-build   the fuzzer as it is, and the seeds
#   --list       the parsers' names
# Exit code 1 if there was a crash. build/fuzz/crashes/PARSER keeps its input; `build/fuzz/tests/fuzz/fuzz PARSER FILE`
# runs it again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$PWD/build/fuzz program=$PWD/build/fuzz/tests/fuzz/fuzz
minutes=1 build=yes names=()
kMostCrashes=20  # after this many in one call a parser gets no more time

while [ $# -gt 0 ]; do
  case $1 in
    --minutes) minutes=${2:?--minutes needs a number} && shift ;;
    --no-build) build= ;;
    --list) names=(--list) ;;
    -*)
      echo "tests/fuzz.sh: unknown option $1; try --minutes, --no-build, --list" >&2
      exit 2
      ;;
    *) names+=("$1") ;;
  esac
  shift
done

[[ $minutes =~ ^[1-9][0-9]*$ ]] || {
  echo "tests/fuzz.sh: --minutes must be a whole number above 0; got $minutes" >&2
  exit 2
}
mkdir -p "$work"
exec 9>"$work/lock"
flock -n 9 || {
  echo "tests/fuzz.sh: another one is running in $work; wait until it has finished, or use another checkout" >&2
  exit 2
}
if [ -n "$build" ]; then
  cmake --preset release --log-level=WARNING >/dev/null
  cmake --build --preset release -j "$(nproc)" --target tapeformer tapeformer_programs
  cmake --preset fuzz --log-level=WARNING >/dev/null
  cmake --build --preset fuzz -j "$(nproc)"
fi
[ -x "$program" ] || {
  echo "tests/fuzz.sh: there is no $program; try the command without --no-build" >&2
  exit 2
}
if [ "${names[*]}" = --list ]; then
  exec "$program" --list
fi
[ ${#names[@]} -gt 0 ] || { mapfile -t names < <("$program" --list) && wait $!; }

# The inputs lie in memory while they are read.
[ ! -d /dev/shm ] || export TMPDIR=/dev/shm
export ASAN_OPTIONS=allocator_may_return_null=0 UBSAN_OPTIONS=print_stacktrace=1 OMP_NUM_THREADS=1
limits=(-timeout=10 -malloc_limit_mb=512 -rss_limit_mb=4096)

# A dictionary of the format for libFuzzer: words in quotation marks, and options.
dictionary() {
  cat "$1"/* | { grep -aoE '"[A-Za-z_.]{1,40}"|--[a-z-]+' || true; } | LC_ALL=C sort -u | sed 's/"//g; s/.*/"&"/'
}

stat_of() { awk -v name="stat::$1:" '$1 == name { value = $2 } END { print value + 0 }' "$work/log"; }
# The coverage that libFuzzer has last printed, in edges.
coverage() { { grep -oE 'cov: [0-9]+' "$work/log" || true; } | tail -1 | cut -c6-; }

# fuzz NAME: for $minutes, again after every crash. Adds a line to totals.tsv: parser, seconds, executions, edges, crashes.
fuzz() {
  local corpus=$work/corpus/$1 crashes=$work/crashes/$1 begun=$SECONDS executions=0 found=0 left edges=0
  rm -rf "$work/seeds"
  mkdir -p "$corpus" "$crashes" "$work/seeds"
  "$program" "$1" --seeds "$work/seeds"
  dictionary "$work/seeds" >"$work/dictionary"
  local options=("${limits[@]}")
  [ ! -s "$work/dictionary" ] || options+=(-dict="$work/dictionary")  # libFuzzer refuses an empty one
  while left=$((minutes * 60 - (SECONDS - begun))) && [ $left -gt 0 ] && [ $found -lt $kMostCrashes ]; do
    "$program" "$1" -max_total_time=$left -print_final_stats=1 "${options[@]}" \
      -artifact_prefix="$crashes/" "$corpus" "$work/seeds" >"$work/log" 2>&1 || found=$((found + 1))
    executions=$((executions + $(stat_of number_of_executed_units)))
    edges=$(coverage)
  done
  rm -rf "$work/smaller"
  mkdir "$work/smaller"
  "$program" "$1" -merge=1 "${limits[@]}" "$work/smaller" "$corpus" "$work/seeds" >>"$work/log" 2>&1 || true
  if [ -n "$(ls "$work/smaller")" ]; then
    rm -rf "$corpus" && mv "$work/smaller" "$corpus"
  fi
  printf '%s\t%d\t%d\t%d\t%d\n' "$1" $((SECONDS - begun)) "$executions" "${edges:-0}" "$found" >>"$work/totals.tsv"
  printf '%s: %d executions in %d s, %d crashes\n' "$1" "$executions" $((SECONDS - begun)) "$found" >&2
  [ $found -eq 0 ] || status=1
}

status=0
for name in "${names[@]}"; do fuzz "$name"; done
echo
awk -F'\t' '
  { seconds[$1] += $2; executions[$1] += $3; edges[$1] = $4; crashes[$1] += $5; last[$1] = $5 }
  END {
    printf "%-20s %8s %12s %8s %8s %8s %8s\n", "parser", "hours", "executions", "a second", "edges", "crashes", "at last"
    for (name in seconds)
      printf "%-20s %8.2f %12d %8d %8d %8d %8d\n", name, seconds[name] / 3600, executions[name],
        executions[name] / (seconds[name] > 0 ? seconds[name] : 1), edges[name], crashes[name], last[name] | "sort"
  }' "$work/totals.tsv"
exit $status
