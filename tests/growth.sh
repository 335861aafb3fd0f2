#!/usr/bin/env bash
# Whether runs grow: resident memory, file descriptors and threads of both programs in parallel, while
# validations, checkpoints, kept weights and samples are far more frequent than in usual runs.
# Usage: tests/growth.sh PROGRAMS MINUTES [RUNS]
#   PROGRAMS  the folder with train_language_model and train_translation, such as build/release/examples
#   RUNS      where runs and samples (NAME.samples: seconds, KiB, descriptors, threads) stay; else they are deleted
# Samples begin with the first validated weights, and their first quarter is left out: buffers of the longest batch come
# in it. Of the rest, the last third may have at most 4 MiB more than the first third, and no more descriptors and
# threads at its least than that had at its most: reports keep up to 500 validations, and a rare batch is longer than all
# before it, which made 1.2 MiB at the most. A checkpoint's buffer that is not given back makes 30 MiB in six seconds, and
# two bytes per step make 4 MiB in an hour. Prints one line per program; fails where one grows.
set -euo pipefail
programs=$(realpath "${1:?names the folder with the programs}") minutes=${2:?says how many minutes to train}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
if [ $# -gt 2 ]; then
  mkdir -p "$3"
  runs=$(realpath "$3")
else
  runs=$(mktemp -d)
fi

often=(--steps 100000000 --schedule constant --max-minutes "$minutes" --validate-every 60 --checkpoint-every 20
  --keep-checkpoints 3 --samples 1 --log-every 10 --width 32 --heads 2 --dropout 0.1 --threads 0)
declare -A process
trap 'kill "${process[@]}" 2>/dev/null || true; wait; [ -n "${3:-}" ] || rm -rf "$runs"' EXIT

start() {  # start PROGRAM OPTIONS...
  local name=$1
  shift
  "$programs/$name" train --run "$runs/$name" "${often[@]}" "$@" >"$runs/$name.out" 2>"$runs/$name.err" &
  process[$name]=$!
  : >"$runs/$name.samples"
}
start train_language_model --layers 2 --context 32 --batch 4 --validation-batches 2 --validation-kind estimate
start train_translation --grammar-pairs 3000 --batch-tokens 256 --held-out 20 --encoder-layers 1 --decoder-layers 1

sample() {  # sample NAME SECONDS
  local status="/proc/${process[$1]}"
  [ -e "$runs/$1/weights.safetensors" ] || return 0
  [ -r "$status/status" ] || return 0
  awk -v seconds="$2" -v descriptors="$(find "$status/fd" -type l 2>/dev/null | wc -l)" '
    /^VmRSS:/ { resident = $2 } /^Threads:/ { threads = $2 }
    END { if (resident) print seconds, resident, descriptors, threads }' "$status/status" >>"$runs/$1.samples" || true
}
period=$(awk -v minutes="$minutes" 'BEGIN { s = minutes / 8; print (s < 0.1 ? 0.1 : s > 5 ? 5 : s) }')
while kill -0 "${process[@]}" 2>/dev/null; do
  for name in "${!process[@]}"; do sample "$name" "$SECONDS"; done
  sleep "$period"
done

failed=0
for name in train_language_model train_translation; do
  code=0
  wait "${process[$name]}" || { code=$? && tail -n 5 "$runs/$name.err"; }
  awk -v name="$name" -v code="$code" '
    function median(from, to, i, j, sorted) {
      for (i = from; i < to; ++i) {
        for (j = i; j > from && sorted[j - 1] > resident[i]; --j) sorted[j] = sorted[j - 1]
        sorted[j] = resident[i]
      }
      return sorted[int((from + to) / 2)]
    }
    { seconds[NR] = $1; resident[NR] = $2; descriptors[NR] = $3; threads[NR] = $4 }
    END {
      begin = int(NR / 4) + 1; third = int((NR - begin + 1) / 3)
      if (code != 0 || third < 2) {
        print name ": exit code " code " after " NR " samples; try more minutes"
        exit 1
      }
      last = NR - third + 1
      grown = median(last, NR + 1) - median(begin, begin + third)
      most_d = most_t = 0; least_d = least_t = 1e9
      for (i = begin; i < begin + third; ++i) {
        if (descriptors[i] > most_d) most_d = descriptors[i]
        if (threads[i] > most_t) most_t = threads[i]
      }
      for (i = last; i <= NR; ++i) {
        if (descriptors[i] < least_d) least_d = descriptors[i]
        if (threads[i] < least_t) least_t = threads[i]
      }
      for (i = begin; i <= NR; ++i) { x += seconds[i]; y += resident[i]; xx += seconds[i] ^ 2; xy += seconds[i] * resident[i] }
      count = NR - begin + 1
      spread = count * xx - x * x
      slope = spread > 0 ? 3600 * (count * xy - x * y) / spread : 0
      grows = grown > 4096 || least_d > most_d || least_t > most_t
      printf "%s: %d samples in %d s; resident %d KiB at first, %d at last, %+.0f an hour; descriptors %d, %d; threads %d, %d: %s\n",
        name, NR, seconds[NR] - seconds[1], resident[begin], resident[NR], slope, descriptors[begin], descriptors[NR],
        threads[begin], threads[NR], grows ? "GROWS" : "does not grow"
      exit grows
    }' "$runs/$name.samples" || failed=1
done
exit $failed
