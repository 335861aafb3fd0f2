#!/usr/bin/env bash
# Training on several ranks as its users see it: the same losses on one and on several, sharded optimizers, checkpoints that
# other numbers resume, and what happens when a rank dies, hangs or was started otherwise.
# Usage: ranks.sh TRAIN_LANGUAGE_MODEL TRAIN_TRANSLATION
set -u
translation=$(realpath "$2")
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"
mpirun=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../mpirun.sh")
export OMP_NUM_THREADS=1

language=(train --layers 2 --width 32 --heads 2 --context 16 --batch 6 --steps 24 --warmup 4 --validate-every 12
  --validation-batches 2 --validation-kind estimate --samples 1 --log-every 1)
pairs=(train --encoder-layers 1 --decoder-layers 1 --width 32 --feed-forward 64 --heads 2 --max-length 16 --batch-tokens 256 --steps 16 --warmup 4
  --validate-every 8 --samples 1 --log-every 1)
# on RANKS PROGRAM ARGUMENTS...: its output goes to err.
on() { timeout 120 "$mpirun" -n "$@" >"$work/out" 2>"$work/err" </dev/null; }
# agrees FOLDER OTHER: the two runs have the same losses, to the rounding of some thousand f32 operations.
agrees() {
  losses "$work/$1" >"$work/losses"
  losses "$work/$2" >"$work/others"
  alike "$work/losses" "$work/others" 1e-5
}

# --- the same training on one rank and on several; examples/train/test_sharing_batches.cpp has other numbers ------------
check "one process trains" "$program" "${language[@]}" --dropout 0 --run "$work/one" 2>"$work/err"
on 3 "$program" "${language[@]}" --dropout 0 --run "$work/ranks3"
check "three ranks train" test $? = 0
check "they have one process's losses" agrees ranks3 one
check "only one of them tells" test "$(grep -c 'step 24/24' "$work/err")" = 1
check "how long each has waited is told" grep -q 'the processes waited for [0-9.]*, [0-9.]*, [0-9.]* % of the time' "$work/err"
on 3 "$program" "${language[@]}" --dropout 0 --run "$work/again"
for file in weights.safetensors checkpoint.safetensors config.json; do
  check "three ranks train to the same $file again, byte for byte" cmp "$work/ranks3/$file" "$work/again/$file"
done

check "one process learns to translate" "$translation" "${pairs[@]}" --dropout 0 --run "$work/pairs1" 2>"$work/err"
on 2 "$translation" "${pairs[@]}" --dropout 0 --run "$work/pairs2"
check "two ranks learn to translate with its losses" agrees pairs2 pairs1

# --- sharded optimizers --------------------------------------------------------------------------------
on 3 "$program" "${language[@]}" --dropout 0 --shard-optimizer --run "$work/sharded"
check "three ranks with a share of the optimizer each have the same losses" agrees sharded one
check "their checkpoint has the tensors of an undivided one" test \
  "$(stat -c %s "$work/sharded/checkpoint.safetensors")" = "$(stat -c %s "$work/ranks3/checkpoint.safetensors")"

# --- going on ------------------------------------------------------------------------------------------
half=("${language[@]}" --dropout 0.1 --checkpoint-every 8)
on 2 "$program" "${half[@]}" --shard-optimizer --run "$work/whole"
check "two ranks drop elements" test $? = 0
on 2 "$program" "${half[@]}" --shard-optimizer --max-minutes 1e-9 --run "$work/stopped"
check "a limit of time stops all ranks after the same step" grep -q 'the time limit is reached at step 1;' "$work/err"
on 2 "$program" train --resume --shard-optimizer --run "$work/stopped"
for file in weights.safetensors checkpoint.safetensors; do
  check "after a stop, two ranks come to the same $file, byte for byte" cmp "$work/whole/$file" "$work/stopped/$file"
done
for ranks in 1 3; do
  on 2 "$program" "${language[@]}" --dropout 0 --shard-optimizer --max-minutes 1e-9 --run "$work/moved$ranks"
  on $ranks "$program" train --resume --run "$work/moved$ranks"
  check "$ranks ranks go on from the checkpoint of two" agrees moved$ranks one
done

# --- Ctrl-C, a rank that dies, a rank that hangs -------------------------------------------------------
endless=("${language[@]}" --dropout 0 --steps 1000000 --validate-every 1000000 --checkpoint-every 20)
# starts RUN ARGUMENTS...: two ranks in the background, until they have saved a checkpoint of a step.
starts() {
  timeout 120 "$mpirun" -n 2 "$program" "${endless[@]}" --run "$work/$@" >"$work/out" 2>"$work/err" </dev/null &
  launcher=$!
  until grep -q '"step":4[0-9],' "$work/$1/metrics.jsonl" 2>/dev/null || ! kill -0 $launcher 2>/dev/null; do sleep 0.05; done
}
rank_of() { pgrep -f "train_language_model train .*--run $work/$1" --newest; }  # the last one started
resumes() { "$program" train --resume --max-minutes 1e-9 --run "$work/$1" >/dev/null 2>"$work/err"; }

starts interrupted
kill -INT "$(pgrep -P $launcher)" 2>/dev/null
wait $launcher
# Open MPI 5 kills half a second after Ctrl-C, which may be too early.
mpirun --version | grep -q 'Open MPI) 5' ||
  check "Ctrl-C saves, and says so once" test "$(grep -c 'interrupted at step [0-9]*; saved' "$work/err")" = 1
check "and the training goes on from there" resumes interrupted

seq 3000000 >"$work/much"
timeout 60 "$mpirun" -n 2 "$program" train --corpus "$work/much" --tokenizer bpe --run "$work/preparing" >"$work/out" 2>"$work/err" </dev/null &
launcher=$!
until grep -q 'corpus:' "$work/err" || ! kill -0 $launcher 2>/dev/null; do sleep 0.05; done
for rank in $(pgrep -f "train_language_model train .*--run $work/preparing"); do
  tr '\0' '\n' <"/proc/$rank/environ" | grep -qE '^(OMPI_COMM_WORLD_RANK|PMI_RANK)=0$' && kill -INT "$rank"
done
wait $launcher
check "Ctrl-C while rank 0 prepares the data ends the others" test $? = 130 -a ! -e "$work/preparing/checkpoint.safetensors"

starts dead
kill -KILL "$(rank_of dead)"
wait $launcher
check "when a rank dies the others end" test $? != 0
tr '\n' ' ' <"$work/err" >"$work/told"
check "the launcher names it" grep -q 'rank 1 .*exited on  *signal 9' "$work/told"
check "the last checkpoint is whole" resumes dead

starts stuck --collective-minutes 0.05
kill -STOP "$(rank_of stuck)"
wait $launcher
check "when a rank hangs the others end" test $? = 2
check "they name it, and their step" grep -q 'has waited for 3 s at step [0-9]*; rank 1 on .* does not answer' "$work/err"
check "the last checkpoint is whole" resumes stuck

# --- ranks that do not fit together, and wrong input ---------------------------------------------------
on 2 bash -c '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || set -- "$@" --batch 4; exec "$0" "$@"' \
  "$program" "${language[@]}" --run "$work/other"
check "ranks with other options are refused" test $? = 2
check "by name, once" test "$(grep -c 'rank 1 has a different options/batch than rank 0: 4 instead of 6' "$work/err")" = 1
on 3 "$program" train --layers 0 --run "$work/wrong"
check "wrong input ends with 2" test $? = 2
check "and is told once" test "$(grep -c -- '--layers must be' "$work/err")" = 1
on 2 "$program" "${language[@]}" --run "$work/one"
check "a used folder is refused once" test "$(grep -c 'holds a run already' "$work/err")" = 1

# --- the guide's commands, each for one step -------------------------------------------------------------
guide=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../examples/DISTRIBUTED.md")
mkdir "$work/bin" && cd "$work" || exit 1
ln -s "$mpirun" bin/mpirun && ln -s "$program" "$translation" bin
echo 'localhost slots=2' >hosts
export MPIRUN=$(command -v mpirun) PATH=$work/bin:$PATH
while read -r line; do
  check "the guide's command: $line" timeout 60 bash -c "$line --max-minutes 1e-9 2>'$work/err' </dev/null"
done < <(sed -n '/^```sh$/,/^```$/{/^```/!p}' "$guide")
check "the guide has commands" test -d "$work/runs/nodes"

ends_here
