# Runs the parts of gpu_check.sh: each under a limit of its own, none after the whole time is over, and with all results in
# files before the next part begins. Sourced; needs $work, and takes:
#   only     a regular expression for names of parts
#   set      A, B or C: only the parts of that set
#   minutes  when all of it must be over; unset: no limit
#   results  a folder that gets at most eight files of at most 16 MiB, written again after every part
#   lists    set: print the names of parts, and run nothing

# limited SECONDS COMMAND...: 124 when it was ended. A process that even SIGKILL does not end, as one that waits for a broken
# driver, is left behind.
limited() {
  local seconds=$1 end pid signal ended=
  shift
  set -m # a process group of its own, so that all of it can be ended
  "$@" &
  pid=$!
  set +m
  end=$((SECONDS + seconds))
  while kill -0 $pid 2>/dev/null && [ $SECONDS -lt $end ]; do sleep 0.1; done
  for signal in TERM KILL; do
    kill -0 $pid 2>/dev/null || break
    ended=yes
    kill -$signal -- -$pid
    for _ in {1..30}; do
      kill -0 $pid 2>/dev/null || break
      sleep 0.1
    done
  done
  [ -z "$ended" ] || return 124
  wait $pid
}

log_of() { echo "$work/${1//[^A-Za-z0-9]/_}.log"; }

# The most telling line of a log.
summary() {
  grep -aE 'tests passed|passed, [0-9]* failed|checks, |test cases:|ERROR SUMMARY|RACECHECK SUMMARY|best validation loss|[0-9kM] tokens/s|the card copies|devices|kernels take|skipped:' "$1" |
    tail -n 1 | cut -c1-110
}
# After a kernel's fault all later cases fail: the first one tells.
first_failure() { [ "$(wc -l <"$1")" -lt 40 ] || { grep -a -m 1 -B 5 -A 6 -E " ERROR: " "$1" && echo ...; }; return 0; }

# part SETS LIMIT NAME COMMAND...: runs it for LIMIT seconds at most, if it belongs to the set and its name matches, keeps what it
# prints, and notes how it ended. SETS is - for a part of the whole check alone, which gives each part ten minutes at least.
number=0 have_run=()
part() {
  local sets=$1 limit=$2 name=$3 log begin=$SECONDS code=0 verdict line left
  shift 3
  [[ $name =~ $only ]] && [[ -z $set || $sets == *$set* ]] || return 0
  if [ -n "$lists" ]; then
    printf '%-3s %5d s  %s\n' "$sets" "$limit" "$name"
    return
  fi
  number=$((number + 1))
  [ -n "$set" ] || [ "$limit" -ge 600 ] || limit=600 # there is time
  line=$work/lines/$(printf '%03d' $number) log=$(log_of "$name")
  if [ -n "$minutes" ]; then
    left=$((60 * minutes - SECONDS - 10)) # ending a process takes some seconds
    [ "$limit" -le $left ] || limit=$left
  fi
  if [ "$limit" -lt 5 ]; then
    printf '%-46s %-13s\n' "$name" "no time left" | tee "$line"
    return
  fi
  echo "--- $name"
  have_run+=("$name")
  limited "$limit" "$@" >"$log" 2>&1 </dev/null || code=$?
  case $code in
    0) verdict=passed ;;
    77) verdict=skipped ;;
    124) verdict="TIMED OUT" ;;
    *) verdict="FAILED ($code)" ;;
  esac
  if [ $code != 0 ] && [ $code != 77 ]; then
    touch "$work/failed"
    first_failure "$log"
    tail -n 25 "$log"
  fi
  printf '%-46s %-13s %5d s  %s\n' "$name" "$verdict" $((SECONDS - begin)) "$(summary "$log")" | tee "$line"
  save_results "$name"
  return $code
}

# One log of all parts, the end of each; the records of the benches; and how the parts ended.
save_results() {
  [ -n "$results" ] || return 0
  local kept log=$results/parts.log
  { echo "=== $1" && tail -c 500000 "$(log_of "$1")"; } >>"$log"
  kept=$(tail -c 15000000 "$log") && echo "$kept" >"$log"
  for kept in "$work"/*.jsonl; do
    [ ! -e "$kept" ] || tail -c 15000000 "$kept" >"$results/${kept##*/}"
  done
  cat "$work"/lines/* >"$results/table${set:+_$set}.txt"
}
