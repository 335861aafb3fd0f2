#!/usr/bin/env bash
# Both programs where the system gives too little: address space (ulimit -v), threads (-u), file descriptors (-n), and
# where control groups can be made, memory. Every training must end well, or with exit code 2 and one line that says what
# is missing; or the system's loader says that it cannot start it (exit code 127).
# Usage: tests/limits.sh PROGRAMS [VALUES]
#   PROGRAMS  the folder with train_language_model and train_translation, such as build/release/examples
#   VALUES    how many values of ulimit -v to try; 100 unless given; of the other limits at most as many
set -u
programs=$(realpath "${1:?names the folder with the programs}") values=${2:-100}
work=$(mktemp -d) group=''
trap 'rm -rf "$work"; [ -z "$group" ] || rmdir "$group"' EXIT
cd "$work" || exit 1
cp "$programs"/train_{language_model,translation} .  # where other users may run them
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
small=(--steps 3 --warmup 1 --width 32 --heads 2 --validate-every 2)
declare -A options=(
  [train_language_model]='--layers 2 --context 32 --batch 8 --validation-kind estimate --validation-batches 2'
  [train_translation]='--grammar-pairs 300 --held-out 20 --encoder-layers 1 --decoder-layers 1'
)
failed=0 start=''
declare -A seen

try() {  # try WHAT OPTIONS...: one training, begun as $start says; counts how it ends
  local what=$1 code lines outcome
  shift
  rm -rf run
  # shellcheck disable=SC2086
  timeout 120 "${user[@]}" bash -c "$start"' && exec "$@"' bash "./$program" train --run run ${options[$program]} "$@" \
    >out 2>err </dev/null
  code=$?
  lines=$(grep -c "^$program: " err)
  outcome="exit code $code"
  case $code in
    0) outcome=trained ;;
    2) [ "$lines" = 1 ] && outcome=refused || outcome="exit code 2 with $lines lines" ;;
    127) grep -q 'error while loading shared libraries' err && outcome='not loaded' ;;
  esac
  seen[$outcome]=$((${seen[$outcome]:-0} + 1))
  case $outcome in trained | refused | 'not loaded') return ;; esac
  echo "FAILED: $program with $what: $outcome"
  tail -n 3 err | cut -c1-300 | sed 's/^/    /'
  failed=1
}

# ladder FROM TO MOST: at most that many numbers in between, and both.
ladder() { awk -v from="$1" -v to="$2" -v most="$3" 'BEGIN {
  if (most > to - from + 1) most = to - from + 1
  for (i = 0; i < most; ++i) print int(from + (to - from) * i / (most - 1)) }'; }
fewer() { echo $((values < $1 ? values : $1)); }

report() {  # report WHAT
  local outcome text=''
  for outcome in "${!seen[@]}"; do text+=", ${seen[$outcome]} $outcome"; done
  echo "$program, $1: ${text#, }"
  seen=()
}

# A control group of this shell's children, of version 1 or 2; $group is empty where none can be made.
for parent in /sys/fs/cgroup/memory /sys/fs/cgroup; do
  [ -z "$group" ] || break
  mkdir "$parent/tapeformer_limits_$$" 2>/dev/null || continue
  group=$parent/tapeformer_limits_$$
  for limit in memory.limit_in_bytes memory.max; do [ ! -w "$group/$limit" ] || break 2; done
  rmdir "$group"
  group=''
done

for program in train_language_model train_translation; do
  user=()
  for kib in $(ladder 40000 800000 "$values"); do
    start="ulimit -v $kib" && try "$start" "${small[@]}"
  done
  report "address space"
  for files in $(ladder 3 24 "$(fewer 22)"); do
    start="ulimit -n $files" && try "$start" "${small[@]}"
  done
  report "file descriptors"
  if [ -n "$group" ]; then
    for mib in $(ladder 80 480 "$(fewer 9)"); do
      echo $((mib << 20)) >"$group/$limit"
      start="echo \$\$ >$group/cgroup.procs" && try "$mib MiB" --steps 2 --width 512 --validate-every 2
    done
    report "memory of a control group"
  fi
  if [ "$(id -u)" = 0 ]; then  # whose threads are not limited
    chmod 777 .
    user=(setpriv --reuid 54321 --clear-groups)
  fi
  for threads in $(ladder 1 12 "$(fewer 12)"); do
    start="export OMP_NUM_THREADS=4 && ulimit -u $threads" && try "ulimit -u $threads" "${small[@]}"
  done
  report threads
done
exit $failed
