#!/usr/bin/env bash
# bench/sweep on a model of moments: it stops, goes on, repeats nothing, and prints its table.
# Usage: test_sweep.sh TRAIN_LANGUAGE_MODEL
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../examples/program_test.sh" "$1"
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
rm -f "$table"  # this refuses nothing on the program's behalf
seq 1 300 >"$work/text"

sweep() { "$here/sweep" --program "$program" --runs "$work/runs" "$@" >"$work/out" 2>"$work/err"; }
options=(--corpus "$work/text" --layers 1 --width 16 --heads 2 --context 8 --batch 4 --samples 0 --validation-kind exact)

sweep --seeds 2 --minutes 0 --vary learning-rate 1e-3 3e-2 -- "${options[@]}" --steps 6
check "no time: nothing is trained" test "$(wc -l <"$work/runs/results.jsonl")" = 0
check "no time: says how to go on" grep -q 'the same command goes on' "$work/err"
sweep --seeds 1 --jobs 2 --vary learning-rate 1e-3 3e-2 -- "${options[@]}" --steps 6
check "a seed: two trainings" test "$(wc -l <"$work/runs/results.jsonl")" = 2
before=$(stat -c %y "$work/runs/learning-rate=1e-3/seed-1/weights.safetensors")
# As many jobs as cores, so that each training has one thread: the winner's bytes depend on their number.
sweep --seeds 2 --jobs "$(env -u OMP_NUM_THREADS nproc)" --vary learning-rate 1e-3 3e-2 -- "${options[@]}" --steps 6
check "another seed: four" test "$(wc -l <"$work/runs/results.jsonl")" = 4
check "another seed: what had ended stays" \
  test "$(stat -c %y "$work/runs/learning-rate=1e-3/seed-1/weights.safetensors")" = "$before"
check "a row a combination" test "$(grep -c '^| learning-rate=.* | 2 | [0-9.]* | [0-9.]* | ' "$work/out")" = 2
check "the higher rate learns more in six steps" grep -q '^best: learning-rate=3e-2$' "$work/out"
loss=$(sed -n 's/.*"best_loss":\([0-9.]*\).*/\1/p' "$work/runs/learning-rate=3e-2/seed-2/metrics.jsonl")
check "the loss is the run's" grep -q "^| learning-rate=3e-2 .*$(printf %.4f "$loss") |" "$work/out"
sed -n 's/^  \(.* train --run\) RUN/\1 '"${work//\//\\/}"'\/winner --threads 1 --seed 2/p' "$work/out" >"$work/command"
bash "$work/command" 2>"$work/err"
check "the winner's command trains the winner" \
  cmp "$work/winner/weights.safetensors" "$work/runs/learning-rate=3e-2/seed-2/weights.safetensors"
sweep --seeds 1 --vary learning-rate 1e-3 3e-2 -- "${options[@]}" --steps 7
check "other options in the same folder are refused" grep -q 'was trained with other options' "$work/err"
sweep --seeds 1 --case 'bad: --no-such-option' -- "${options[@]}"
check "a training that fails: exit code 1" test $? = 1
check "a training that fails: where to look" grep -q 'exit code 2; see ' "$work/err"

echo "$passed passed, $failed failed"
test "$failed" = 0
