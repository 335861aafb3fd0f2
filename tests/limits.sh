#!/usr/bin/env bash
# Both programs where the system gives too little: address space (ulimit -v), threads (-u), file descriptors (-n), and
# where root may make control groups, memory. Every training ends well, or with exit code 2 and one line that says what
# is missing; or the system's loader says that it cannot start it (exit code 127).
# Usage: tests/limits.sh PROGRAMS [VALUES]
#   PROGRAMS  the folder with train_language_model and train_translation, such as build/release/examples
#   VALUES    how many values of ulimit -v to try; 100 unless given
set -u
programs=$(realpath "${1:?names the folder with the programs}") values=${2:-100}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
few=(--steps 3 --warmup 1 --width 32 --heads 2 --validate-every 2)
declare -A options=(
  [train_language_model]='--layers 2 --context 32 --batch 8 --validation-kind estimate --validation-batches 2'
  [train_translation]='--grammar-pairs 300 --held-out 20 --encoder-layers 1 --decoder-layers 1'
)
status=0
declare -A seen

# What a user who has no more rights than others runs as; root's number of threads is not limited.
as_user=()
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  as_user=(setpriv --reuid 54321 --clear-groups)
  chmod 777 "$work"
fi

# try LETTER VALUE: one training under that ulimit.
try() {
  local code
  rm -rf run
  # shellcheck disable=SC2016,SC2086
  timeout 60 "${user[@]}" bash -c 'ulimit -$0 $1 && shift && exec "$@"' "$1" "$2" \
    "$programs/$program" train --run run "${few[@]}" ${options[$program]} >out 2>err </dev/null
  code=$?
  local lines
  lines=$(grep -c "^$program: " err)
  case $code in
    0) outcome=trained ;;
    2) [ "$lines" = 1 ] && outcome=refused || outcome="exit code 2 and $lines lines" ;;
    127) grep -q 'error while loading shared libraries' err && outcome=loader || outcome="exit code 127" ;;
    *) outcome="exit code $code" ;;
  esac
  seen[$outcome]=$((${seen[$outcome]:-0} + 1))
  case $outcome in
    trained | refused | loader) ;;
    *)
      echo "FAILED: $program under ulimit -$1 $2: $outcome"
      tail -n 3 err | cut -c1-300 | sed 's/^/    /'
      status=1
      ;;
  esac
}

report() {  # report WHAT
  local outcome text=
  for outcome in "${!seen[@]}"; do text+=", ${seen[$outcome]} $outcome"; done
  echo "$program, $1: ${text#, }"
  seen=()
}

for program in train_language_model train_translation; do
  user=()
  # From where the loader cannot map the libraries, to where there is enough.
  for i in $(seq "$values"); do
    kib=$((40000 + 760000 * i / values))
    try v $kib
  done
  report "address space"
  for files in $(seq 3 24); do try n "$files"; done
  report "file descriptors"
  user=("${as_user[@]}")
  if [ "$(id -u)" != 0 ] || [ ${#user[@]} -gt 0 ]; then
    for threads in $(seq 1 8); do OMP_NUM_THREADS=4 try u "$threads"; done
    report "threads"
  fi
done
exit $status
