#!/usr/bin/env bash
# How far the losses of one training go apart where only the same numbers are added in another order: with other numbers of
# threads, with the instructions that oneDNN and OpenBLAS find on other machines (tests/other_machines.sh --list), and in
# other builds. A table beside what roundings may do to first order; autograd/README.md says what it means.
# Usage: tests/reproducibility.sh [--steps N] [--built FOLDER]...
#   --steps N        of each training; 200 unless given
#   --built FOLDER   the build that trains, build/release unless given; further ones get a row each
# Exit code 1 if a difference is larger than the worst case.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

steps=200 built=()
while [ $# -gt 0 ]; do
  case $1 in
    --steps) steps=${2:?--steps needs a number} && shift ;;
    --built) built+=("${2:?--built needs a folder}") && shift ;;
    *)
      echo "tests/reproducibility.sh: unknown option $1; try --steps N, --built FOLDER" >&2
      exit 2
      ;;
  esac
  shift
done
[ ${#built[@]} -gt 0 ] || built=(build/release)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
status=0

# losses FILE FOLDER THREADS [VARIABLE=VALUE...]: of each step of a training by the program, with the build in FOLDER.
losses() {
  local file=$1 folder=$2 threads=$3
  shift 3
  rm -rf "$work/run"
  if ! env "$@" "$folder/examples/$program" train --run "$work/run" "${options[@]}" --steps "$steps" --warmup $((steps / 10)) \
    --validate-every "$steps" --samples 0 --log-every 1 --threads "$threads" >"$work/log" 2>&1; then
    cat "$work/log" >&2
    exit 1
  fi
  sed -n 's/.*"train_loss":\([0-9.e+-]*\).*/\1/p' "$work/run/metrics.jsonl" >"$work/$file"
}

# row NAME ARGUMENTS OF losses...: the largest relative differences from the first training, at the first step, over a tenth of
# the steps and over all.
row() {
  local name=$1
  shift
  losses other "$@"
  paste "$work/first" "$work/other" | awk -v name="$name" -v steps="$steps" -v rounds="$rounds" '
    { difference = $1 > $2 ? ($1 - $2) / $1 : ($2 - $1) / $1; if (difference > most) most = difference }
    NR == 1 { one = most }
    NR == int(steps / 10) { few = most }
    END {
      if (NR != steps) exit 1
      printf "%-18s %10.1e %12.1e %12.1e\n", name, one, few, most
      exit one > 2 * rounds * 2 ^ -24 || most > 6 * rounds * steps * 2 ^ -24
    }' || { echo "more than rounding explains" && status=1; }
}

# table PROGRAM ROUNDINGS OPTION...: of a program; that many roundings lie one behind the other on the way from the weights to the
# loss. A step is that way, the way back and the next one there.
table() {
  program=$1 rounds=$2
  shift 2
  options=("$@")
  echo "$program, relative difference of the loss from 1 thread"
  printf '%-18s %10s %12s %12s\n' '' 'step 1' "$((steps / 10)) steps" "$steps steps"
  losses first "${built[0]}" 1
  row '1 thread, again' "${built[0]}" 1
  row '2 threads' "${built[0]}" 2
  row '3 threads' "${built[0]}" 3
  while IFS=: read -r machine environment; do
    [ "$machine" != portable ] || continue  # a build of its own
    read -ra variables <<<"$environment"
    row "$machine" "${built[0]}" 1 "${variables[@]}"
  done < <(tests/other_machines.sh --list)
  for folder in "${built[@]:1}"; do row "$(basename "$folder")" "$folder" 1; done
  awk -v rounds="$rounds" -v steps="$steps" 'BEGIN {
    u = 2 ^ -24; few = 3 * rounds * int(steps / 10); all = 3 * rounds * steps
    printf "%-18s %10.1e %12.1e %12.1e\n", "likely", 10 * sqrt(rounds) * u, 10 * sqrt(few) * u, 10 * sqrt(all) * u
    printf "%-18s %10.1e %12.1e %12.1e\n\n", "worst case", 2 * rounds * u, 2 * few * u, 2 * all * u
  }'
}

# The lengths of the sums in a layer of width C, heads of D, T keys and a hidden width F: norms, queries, keys, scores, weights,
# values, output, norm, both matrices of the feed-forward network; a few for what is done to single numbers.
layer() { echo $((5 * $1 + $2 + 2 * $3 + $4 + 20)); }

# Two layers of width 64 with heads of 16 over 32 tokens; the last norm, the head, the softmax over 61 letters, the mean of 256.
table train_language_model $((2 * $(layer 64 16 32 256) + 64 + 64 + 61 + 256)) --layers 2 --width 64 --heads 4 --context 32 \
  --batch 8
# An encoder's layer and a decoder's, with attention twice, the head, a softmax over some 500 words and the mean of 512.
table train_translation $((3 * $(layer 64 16 16 128) + 64 + 500 + 512)) --grammar-pairs 2000 --held-out 20 --width 64 --heads 4 \
  --encoder-layers 1 --decoder-layers 1 --feed-forward 128 --batch-tokens 512
exit $status
