#!/usr/bin/env bash
# The program train_translation as its users meet it: resume after kill -9 and Ctrl-C, bad input, damaged files,
# a full disk. Usage: train_translation.sh PROGRAM
set -u
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"

tiny=(--grammar-pairs 400 --held-out 20 --tokenizer word --width 16 --heads 2 --encoder-layers 1 --decoder-layers 1
  --feed-forward 32 --batch-tokens 256 --dropout 0.1 --steps 60 --warmup 10 --validate-every 20 --checkpoint-every 7
  --accumulate 2 --samples 1 --log-every 10 --threads 2)

# --- a whole training, then the same one interrupted -------------------------------------------------------
train "$work/whole" "${tiny[@]}"
check "a training ends well" test $? = 0
cp "$work/err" "$work/err.whole"
check "the best weights are there" test -s "$work/whole/weights.safetensors"
check "metrics are JSON lines with validation losses" grep -q '"validation_loss"' "$work/whole/metrics.jsonl"

interrupts_training KILL "$work/killed" "${tiny[@]}" --max-minutes 5
check "kill -9 came in the middle" test $code = 137
train "$work/killed" --resume
check "a killed training resumes" test $? = 0
for file in weights.safetensors checkpoint.safetensors config.json source.vocabulary target.vocabulary; do
  check "after kill -9 and resuming, $file is the uninterrupted run's, byte for byte" \
    cmp "$work/whole/$file" "$work/killed/$file"
done
check "and so are the losses in metrics.jsonl" test "$(losses "$work/whole")" = "$(losses "$work/killed")"

interrupts_training TERM "$work/stopped" "${tiny[@]}"
check "Ctrl-C ends with 130" test $code = 130
check "Ctrl-C says how to go on" grep -q -- '--resume' "$work/err"
answers_ctrl_c
train "$work/stopped" --resume
check "a stopped training resumes to the same weights" cmp "$work/whole/weights.safetensors" "$work/stopped/weights.safetensors"
train "$work/stopped" --resume
check "resuming a finished training says so" grep -q finished "$work/err"
goes_on "$work/stopped"

# --- another training from its weights ------------------------------------------------------------------------
validated() { grep -o '"validation_loss":[0-9.]*' "$1/metrics.jsonl" | tail -1; }
train "$work/tuned" --from "$work/whole" "${tiny[@]}" --steps 2 --warmup 0 --learning-rate 1e-12
check "fine-tuning a run" test $? = 0
check "it says what it starts from" grep -q "starts from the weights in .*whole; optimizer and schedule begin anew" "$work/err"
check "fine-tuning keeps the vocabularies" cmp "$work/whole/source.vocabulary" "$work/tuned/source.vocabulary"
validated "$work/whole" >"$work/before" && validated "$work/tuned" >"$work/after"
check "a step of next to nothing leaves the model's loss" alike "$work/before" "$work/after" 1e-4
train "$work/tuned" --resume --steps 3
check "a fine-tuned run goes on" test $? = 0
refuses "fine-tuning to another width" "--width 32 contradicts --from .*, which has 16" train --run "$work/new" \
  --from "$work/whole" --width 32
refuses "fine-tuning nothing" "nothere" train --run "$work/new" --from "$work/nothere"
check "samples show the source, the translation and the reference" grep -q '^  .*  →  .*  (reference: .*)$' "$work/err.whole"

# --- one training a folder -----------------------------------------------------------------------------------
reads() { echo 'the cat sleeps .' | "$program" translate --run "$1"; }
keeps_others_out reads "${tiny[@]}"

# --- layers recomputed: less memory, the same results --------------------------------------------------------
recomputes_layers "${tiny[@]}"

# Signals that arrive in the middle of large matrix products must not harm the heap under them.
for delay in 1.2 1.4 1.6 1.8; do
  "$program" train --run "$work/large$delay" --grammar-pairs 2000 --held-out 20 --width 256 --feed-forward 512 --samples 0 \
    --threads 2 >/dev/null 2>"$work/err" &
  victim=$!
  sleep "$delay"
  kill -TERM $victim
  wait $victim
  check "a signal amid large products stops and saves" test $? = 130
done

# --- what other programs on the machine get: a thread looks for them, unless the user has chosen -----------------
threads() {  # threads VARIABLE=VALUE...: how many there are once a sentence is translated
  coproc waiting { exec env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "$@" "$program" translate --run "$work/whole" 2>"$work/err"; }
  echo 'the cat sleeps .' >&"${waiting[1]}"
  read -r _ <&"${waiting[0]}"
  ls "/proc/$waiting_PID/task" | wc -l
  kill "$waiting_PID"
  wait "$waiting_PID" 2>/dev/null
}
if [ -d /proc/self/task ]; then
  unasked=$(threads)
  check "a program looks for others" test "$unasked" -gt "$(threads OMP_WAIT_POLICY=passive)"
  check "but for a user's policy, and a user's count" test "$(threads GOMP_SPINCOUNT=17)" = "$(threads OMP_WAIT_POLICY=active)"
fi

# --- using it ----------------------------------------------------------------------------------------------
printf 'the cat sleeps .\n\nthe dog .\n' | "$program" translate --run "$work/whole" >"$work/out" 2>"$work/err"
check "translate answers every line, empty ones too" test "$(wc -l <"$work/out")" = 3
printf 'the cat sleeps .\n\nthe dog .\n' | "$program" translate --run "$work/whole" --heatmap "$work/map.svg" \
  --heatmap-head all >"$work/out" 2>"$work/err"
check "translate --heatmap draws a picture for every line that has words" sh -c \
  "grep -q 'head 1' '$work/map.svg' && test -s '$work/map-3.svg' && test ! -e '$work/map-2.svg'"
refuses "a head that is not there" "--heatmap-head must be 0 to 1" translate --run "$work/whole" \
  --heatmap "$work/map.svg" --heatmap-head 2
refuses "a heat map without a file" "--heatmap" translate --run "$work/whole" --heatmap-head 1
said() { printf 'the cat sleeps .\nthe cat sleeps .\n' | "$program" translate --run "$work/whole" "$@" 2>"$work/err"; }
said >"$work/searched"
for cache in contiguous paged none; do
  check "translate says the same with --cache $cache" sh -c \
    "printf 'the cat sleeps .\nthe cat sleeps .\n' | '$program' translate --run '$work/whole' --cache $cache | cmp - '$work/searched'"
done
sampled=(--sample --temperature 3 --top-k 50 --top-p 0.99 --max-tokens 40)
said "${sampled[@]}" --seed 3 >"$work/drawn"
said "${sampled[@]}" --seed 3 >"$work/again"
said "${sampled[@]}" --seed 4 >"$work/otherwise"
check "a seed draws the same again" cmp "$work/drawn" "$work/again"
check "another seed draws another" sh -c "! cmp -s '$work/drawn' '$work/otherwise'"
check "the same sentence again is another draw" test "$(sort -u "$work/drawn" | wc -l)" = 2
refuses "a temperature without --sample" "--sample" translate --run "$work/whole" --temperature 2
refuses "a temperature of zero" "--temperature" translate --run "$work/whole" --sample --temperature 0
refuses "an unknown cache" "--cache" translate --run "$work/whole" --cache ring
"$program" evaluate --run "$work/whole" --beam 2 --output "$work/hypotheses" >"$work/out" 2>"$work/err"
check "evaluate prints BLEU with its signature" grep -q 'tok:13a' "$work/out"
check "evaluate prints the dictionary's score" grep -q 'word-by-word' "$work/out"
check "evaluate writes a line a sentence" test "$(wc -l <"$work/hypotheses")" = 10

for i in $(seq 60); do
  printf 'we have %d cats\tnous avons %d chats\tCC-BY\r\n' "$i" "$i"
done >"$work/pairs.tsv"
cut -f1 "$work/pairs.tsv" >"$work/pairs.en"
cut -f2 "$work/pairs.tsv" >"$work/pairs.fr"
small=("${tiny[@]}" --tokenizer character --steps 12)
(cd "$work" && "$program" train --run tsv "${small[@]}" --pairs pairs.tsv) >/dev/null 2>"$work/err"
check "a training on tab-separated pairs, the path relative" test $? = 0
train "$work/aligned" "${small[@]}" --source "$work/pairs.en" --target "$work/pairs.fr"
check "a training on two aligned files" test $? = 0
check "the same pairs give the same weights" cmp "$work/tsv/weights.safetensors" "$work/aligned/weights.safetensors"
"$program" evaluate --run "$work/tsv" --beam 1 >"$work/out" 2>"$work/err"
check "evaluate finds the corpus from another folder" grep -q 'sentences    10' "$work/out"
cp "$work/pairs.tsv" "$work/pairs.kept" && sed -i 1d "$work/pairs.tsv"
refuses "evaluating on a corpus that has changed" "has changed" evaluate --run "$work/tsv"
refuses "resuming on a corpus that has changed" "has changed" train --run "$work/tsv" --resume
train "$work/swapped" "${small[@]}" --pairs "$work/pairs.kept" --swap --shared-vocabulary --patience 1
check "a swapped training with one vocabulary" test $? = 0

# --- bad input ---------------------------------------------------------------------------------------------
new() { echo "$work/new"; }
printf 'a b\tc d\nno tab here\n' >"$work/untabbed"
printf 'a b\tc d\nbad \xff byte\tx\n' >"$work/invalid"
: >"$work/empty"
for i in $(seq 50); do printf 'this sentence number %d is long\tcette phrase est longue %d\n' "$i" "$i"; done >"$work/long"
refuses "a missing file" "nothere" train --run "$(new)" --pairs "$work/nothere"
refuses "an empty file" "empty" train --run "$(new)" --pairs "$work/empty"
refuses "a line without a tab" "untabbed:2" train --run "$(new)" --pairs "$work/untabbed"
refuses "invalid UTF-8" "invalid:2" train --run "$(new)" --pairs "$work/invalid"
printf 'a b\tc d\na\0\t\0c\0\n' >"$work/utf16"
refuses "UTF-16, which reads as UTF-8" "utf16:2: a NUL at byte 2 of the line" train --run "$(new)" --pairs "$work/utf16"
refuses "no usable pair" "long" train --run "$(new)" --pairs "$work/long" --max-words 2
refuses "width not divisible by heads" "divisible" train --run "$(new)" "${tiny[@]}" --width 17
refuses "an unknown flag" "--wdith" train --run "$(new)" --wdith 16
refuses "a number that is none" "steps" train --run "$(new)" --steps many
refuses "an impossible dropout" "dropout" train --run "$(new)" "${tiny[@]}" --dropout 1.5
refuses "an unknown schedule" "schedule" train --run "$(new)" "${tiny[@]}" --schedule zigzag
refuses "an unknown activation" "activation" train --run "$(new)" "${tiny[@]}" --activation sine
refuses "half of a pair of files" "--target" train --run "$(new)" --source "$work/long"
refuses "a GPU that is not there" "no cuda:99: .*; try cpu" train --run "$(new)" "${tiny[@]}" --device cuda:99
refuses "a device that is none" "got gpu" train --run "$(new)" "${tiny[@]}" --device gpu
refuses "bf16 on the cpu" "needs a GPU.*--precision f32" train --run "$(new)" "${tiny[@]}" --device cpu --precision bf16
refuses "an unknown precision" "--precision" train --run "$(new)" "${tiny[@]}" --precision f16
refuses "translating on a GPU that is not there" "no cuda:99" translate --run "$work/whole" --device cuda:99
refuses "evaluating in tf32 on the cpu" "needs a GPU" evaluate --run "$work/whole" --device cpu --precision tf32
check "refused trainings leave no folder behind" test ! -e "$work/new"
refuses "an unwritable folder" "cannot be made" train --run /dev/null/run "${tiny[@]}"
refuses "a folder that holds a training" "--resume" train --run "$work/whole" "${tiny[@]}"
refuses "resuming with other options" "--width" train --run "$work/whole" --resume --width 32
refuses "resuming nothing" "no checkpoint" train --run "$(new)" --resume
refuses "translating with no model" "config.json" translate --run "$work/nothere"
refuses "no command" "subcommand" --

refuses "a learning rate that diverges" "step .*learning-rate" train --run "$work/diverged" "${tiny[@]}" \
  --learning-rate 1e30 --clip 0 --warmup 0 --schedule constant
check "a diverged training keeps its last good checkpoint" \
  sh -c "'$program' train --run '$work/diverged' --resume 2>&1 | grep -q 'resumed at step'"
refuses "a divergence in the step that would be saved" "after the update" train --run "$work/diverged2" "${tiny[@]}" \
  --learning-rate 1e30 --clip 0 --warmup 0 --schedule constant --checkpoint-every 1
refuses "more warm-up than steps" "--warmup" train --run "$(new)" "${tiny[@]}" --steps 5
refuses "a beta of one" "beta1" train --run "$(new)" "${tiny[@]}" --beta1 1

# --- damaged files -----------------------------------------------------------------------------------------
damage() { rm -rf "$work/damaged" && cp -r "$work/whole" "$work/damaged"; }
damage && truncate -s -100 "$work/damaged/weights.safetensors"
refuses "truncated weights" "weights.safetensors" translate --run "$work/damaged"
damage && truncate -s 5000 "$work/damaged/checkpoint.safetensors"
refuses "a truncated checkpoint" "checkpoint.safetensors" train --run "$work/damaged" --resume
damage && sed -i 's/"target_vocabulary": [0-9]*/"target_vocabulary": 99/' "$work/damaged/config.json"
refuses "a vocabulary that does not fit the weights" "embedding" translate --run "$work/damaged"
damage && printf '\377' | dd of="$work/damaged/weights.safetensors" bs=1 conv=notrunc status=none \
  seek=$(($(stat -c %s "$work/whole/weights.safetensors") - 30))
refuses "a flipped byte in the weights" "checksum" translate --run "$work/damaged"
"$program" train --run "$work/other" "${tiny[@]}" --seed 5 --steps 12 >/dev/null 2>&1
damage && cp "$work/other/target.vocabulary" "$work/damaged/target.vocabulary"
refuses "another run's vocabulary" "target.vocabulary" translate --run "$work/damaged"
damage && echo '{' >"$work/damaged/config.json"
refuses "a damaged config" "config" translate --run "$work/damaged"
damage && head -c 20 "$work/whole/source.vocabulary" >"$work/damaged/source.vocabulary"
refuses "a damaged vocabulary" "source.vocabulary" translate --run "$work/damaged"
printf 'ok\nbad \xff\n' | "$program" translate --run "$work/whole" >"$work/out" 2>"$work/err"
check "invalid UTF-8 on standard input names the line" grep -q 'input:2: invalid UTF-8 at byte 5' "$work/err"
printf 'ok\na\0b\0\n' | "$program" translate --run "$work/whole" >"$work/out" 2>"$work/err"
check "and so does UTF-16" grep -q 'input:2: a NUL at byte 2' "$work/err"

# --- a full disk: no file may grow beyond a few blocks --------------------------------------------------------
(trap '' XFSZ && ulimit -f 8 && "$program" train --run "$work/full2" "${tiny[@]}") >/dev/null 2>"$work/err"
check "a full disk: exit code 2" test $? = 2
check "a full disk: the message names the file" grep -q 'full2/' "$work/err"
check "a full disk: no temporary file stays" sh -c "! ls '$work/full2' | grep -q partial"

echo "$passed passed, $failed failed"
test "$failed" = 0
