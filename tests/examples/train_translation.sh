#!/usr/bin/env bash
# The program train_translation as its users see it: resuming after Ctrl-C, translating, evaluating, texts of
# all kinds. Usage: train_translation.sh PROGRAM
set -u
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"

sizes=(--width 16 --heads 2 --encoder-layers 1 --decoder-layers 1
  --feed-forward 32 --batch-tokens 256 --dropout 0.1 --steps 60 --warmup 10 --validate-every 20 --checkpoint-every 7
  --accumulate 2 --samples 1 --log-every 10 --threads 2)
tiny=(--grammar-pairs 400 --held-out 20 --tokenizer word "${sizes[@]}")

# --- a whole training, then the same one interrupted -------------------------------------------------------
resumes_to_the_same "${tiny[@]}" --keep-checkpoints 2 -- source.vocabulary target.vocabulary

# --- another training from its weights ------------------------------------------------------------------------
validated() { grep -o '"validation_loss":[0-9.]*' "$1/metrics.jsonl" | tail -1; }
trains "fine-tuning a run" "$work/tuned" --from "$work/whole" "${tiny[@]}" --steps 2 --warmup 0 --learning-rate 1e-12
check "it says what it starts from" grep -q "starts from the weights in .*whole; optimizer and schedule start again" "$work/err"
check "and which settings are not the run's" grep -q "note: settings that differ from that run's (in brackets): .*--learning-rate 1e-12 (" "$work/err"
check "fine-tuning keeps the vocabularies" cmp "$work/whole/source.vocabulary" "$work/tuned/source.vocabulary"
validated "$work/whole" >"$work/before" && validated "$work/tuned" >"$work/after"
check "a step of next to nothing leaves the model's loss" alike "$work/before" "$work/after" 1e-4
trains "a fine-tuned run goes on" "$work/tuned" --resume --steps 3
check "samples show the source, the translation and the reference" grep -q '^  .*  →  .*  (reference: .*)$' "$work/err.whole"

# --- experts -------------------------------------------------------------------------------------------------
trains "experts on both sides" "$work/experts" "${tiny[@]}" --experts 3 --steps 2 --warmup 0 --validate-every 2
check "each one's share of the choices" test "$(grep -oE 'expert_share\.(en|de)coder\.0\.[0-2]' "$work/experts/metrics.jsonl" | sort -u | wc -l)" = 6

# --- one program trains in a folder; layers recomputed -----------------------------------------------------------
reads() { echo 'the cat sleeps .' | "$program" translate --run "$1"; }
keeps_others_out reads "${tiny[@]}"
recomputes_layers "${tiny[@]}" --keep-checkpoints 2

# --- its configuration and parameters ------------------------------------------------------------------------
summarises "${tiny[@]}" --keep-checkpoints 2
reports "${tiny[@]}" --keep-checkpoints 2

# Signals that arrive in the middle of large matrix products must not harm the heap under them.
for delay in 0.1 0.3; do
  "$program" train --run "$work/large$delay" --grammar-pairs 2000 --held-out 20 --width 256 --feed-forward 512 --samples 0 \
    --batch-tokens 1024 --log-every 1 --threads 2 >/dev/null 2>"$work/err" &
  victim=$!
  until grep -q '"step":1,' "$work/large$delay/metrics.jsonl" 2>/dev/null || ! kill -0 $victim 2>/dev/null; do sleep 0.01; done
  sleep "$delay"
  kill -TERM $victim
  wait $victim
  check "a signal amid large products stops and saves" test $? = 130
done

# --- room for other programs on the machine: threads spin for a bounded time, unless the user has chosen ---------
spins() {  # spins COUNT VARIABLE=VALUE...: whether libgomp was told so in the end
  local count=$1
  shift
  env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT -u KMP_BLOCKTIME OMP_DISPLAY_ENV=verbose "$@" "$program" --version 2>&1 |
    grep GOMP_SPINCOUNT | tail -1 | grep -q "'$count'"
}
if ldd "$program" | grep -q libgomp; then
  check "waiting threads spin for a bounded time" spins 1000
  check "but for as long as the user has chosen" spins 17 GOMP_SPINCOUNT=17
  check "also by a policy" spins 0 OMP_WAIT_POLICY=passive
fi

# --- using it ----------------------------------------------------------------------------------------------
printf 'the cat sleeps .\n\nthe dog .\n' | "$program" translate --run "$work/whole" >"$work/out" 2>"$work/err"
check "translate answers every line, empty ones too" test "$(wc -l <"$work/out")" = 3
printf '\357\273\277the cat sleeps .\n\nthe dog .' | "$program" translate --run "$work/whole" 2>"$work/err" >"$work/marked"
check "and takes no notice of a byte order mark" cmp "$work/marked" "$work/out"
"$program" translate --run "$work/whole" 'the cat sleeps .' '' 'the dog .' >"$work/arguments" 2>"$work/err" </dev/null
check "and sentences that are given as arguments" cmp "$work/out" "$work/arguments"
printf 'the dog .\nthe cat sleeps .\n\nthe dog .\n' >"$work/lines"
tac "$work/lines" | "$program" translate --run "$work/whole" 2>"$work/err" | tac >"$work/alone"
for batch in 1 64; do  # of which eight are read before the first is answered
  "$program" translate --run "$work/whole" --batch $batch <"$work/lines" >"$work/out" 2>"$work/err"
  check "lines of a file in batches of $batch keep their order" cmp "$work/alone" "$work/out"
done
"$program" translate --run "$work/whole" --n-best 3 '[the cat, sleeps .]' '' 'the dog .' >"$work/best" 2>"$work/err"
check "--n-best numbers the lines from 0, and has several translations of a sentence" test \
  "$(grep -aE '^[0-2] \|\|\| .* \|\|\| -?[0-9]+\.[0-9]{4}$' "$work/best" | cut -c1 | uniq -c | tr -s ' \n' ' ')" = " 3 0 1 1 3 2 "
check "the best first, which is the one without --n-best" test \
  "$(sed -n 5p "$work/best" | sed 's/^2 ||| //; s/ ||| [^|]*$//')" = "$(sed -n 3p "$work/out")"
check "and scores that fall" sh -c "sed -n '5,7s/.* ||| //p' '$work/best' | LC_ALL=C sort -c -g -r"
refuses "more translations than hypotheses are kept" "--n-best must be at most --beam; got 3 and 2; try --beam 3" \
  translate --run "$work/whole" --n-best 3 --beam 2
refuses "the best of samples" "--n-best" translate --run "$work/whole" --n-best 3 --sample
printf 'the cat sleeps .\n\nthe dog .\n' | "$program" translate --run "$work/whole" --heatmap "$work/map.svg" \
  --heatmap-head all >"$work/out" 2>"$work/err"
check "translate --heatmap draws a picture for every line that has words" sh -c \
  "grep -q 'head 1' '$work/map.svg' && test -s '$work/map-3.svg' && test ! -e '$work/map-2.svg'"
refuses "a head that is not there" "--heatmap-head must be 0 to 1" translate --run "$work/whole" \
  --heatmap "$work/map.svg" --heatmap-head 2
said() { printf 'the cat sleeps .\nthe cat sleeps .\n' | "$program" translate --run "$work/whole" "$@" 2>"$work/err"; }
said >"$work/searched"
for cache in contiguous paged none; do
  check "translate says the same with --cache $cache" sh -c \
    "printf 'the cat sleeps .\nthe cat sleeps .\n' | '$program' translate --run '$work/whole' --cache $cache | cmp - '$work/searched'"
done
sampled=(--sample --temperature 3 --top-k 50 --top-p 0.99 --max-tokens 40)
said "${sampled[@]}" --seed 3 >"$work/drawn"
said "${sampled[@]}" --seed 4 >"$work/otherwise"
check "another seed draws another" differ "$work/drawn" "$work/otherwise"
check "the same sentence again is another draw" test "$(sort -u "$work/drawn" | wc -l)" = 2
refuses "a temperature without --sample" "--sample" translate --run "$work/whole" --temperature 2
refuses "a temperature of zero" "--temperature" translate --run "$work/whole" --sample --temperature 0
refuses "a beam of samples" "--beam" translate --run "$work/whole" --sample --beam 3
refuses "a beam beyond all numbers" "--beam must be from 1 to 2147483647" translate --run "$work/whole" --beam 9223372036854775807
refuses "a length penalty of samples" "--length-penalty" evaluate --run "$work/whole" --sample --length-penalty 1
refuses "a length penalty of greedy search" "--length-penalty has no effect with --beam 1" evaluate --run "$work/whole" \
  --beam 1 --length-penalty 1
does "translate takes the mean of the weights kept" translate --run "$work/whole" --average 2 'the cat sleeps .'
"$program" evaluate --run "$work/whole" --beam 1 2>"$work/err" | grep '^loss' >"$work/best"
"$program" evaluate --run "$work/whole" --beam 1 --average 2 2>"$work/err" | grep '^loss' >"$work/out"
check "the mean of different weights has a loss of its own" differ "$work/best" "$work/out"
refuses "more weights than are kept" "--keep-checkpoints" translate --run "$work/whole" --average 3
said --threads 1 >"$work/out"
check "translate says the same on one thread" cmp "$work/out" "$work/searched"
prints "evaluate prints BLEU with its signature" 'tok:13a' evaluate --run "$work/whole" --beam 2 --output "$work/hypotheses"
"$program" evaluate --run "$work/whole" --beam 2 --json >"$work/json" 2>"$work/err"
number() { sed -n "s/^ *\"$1\": //p" "$work/json" | head -n 1 | tr -d ,; }  # number NAME: in the JSON, to four digits
check "evaluate --json has the same numbers" test \
  "$(LC_ALL=C && printf 'sentences %d, loss %.4f, exact match %.2f, BLEU %.2f, chrF2 %.2f' $(number sentences) $(number loss) \
    $(number exact_match) $(number bleu) $(number chrf))" = \
  "$(sed -n 's/^sentences *\(.*\)/sentences \1/p; s/^loss  *\([0-9.]*\) .*/loss \1/p; s/^\(exact match\) *\([0-9.]*\) .*/\1 \2/p
    s/^BLEU|.* = \([0-9.]*\) .*(.*/BLEU \1/p; s/^chrF2  */chrF2 /p' "$work/out" | paste -sd, | sed 's/,/, /g')"
check "evaluate writes a line a sentence" test "$(wc -l <"$work/hypotheses")" = 10

for i in $(seq 60); do
  printf 'we have %d cats\tnous avons %d chats\tCC-BY\r\n' "$i" "$i"
done >"$work/pairs.tsv"
cut -f1 "$work/pairs.tsv" >"$work/pairs.en"
cut -f2 "$work/pairs.tsv" >"$work/pairs.fr"
short=("${sizes[@]}" --steps 12)
characters=(--tokenizer character "${short[@]}")
small=(--held-out 20 "${characters[@]}")
(cd "$work" && "$program" train --run tsv "${small[@]}" --pairs pairs.tsv) >/dev/null 2>"$work/err"
check "a training on tab-separated pairs, the path relative" test $? = 0
trains "a training on two aligned files" "$work/aligned" "${small[@]}" --source "$work/pairs.en" --target "$work/pairs.fr"
check "the same pairs give the same weights" cmp "$work/tsv/weights.safetensors" "$work/aligned/weights.safetensors"
prints "evaluate finds the corpus from another folder" 'sentences    10' evaluate --run "$work/tsv" --beam 1
cp "$work/pairs.tsv" "$work/pairs.kept" && sed -i 1d "$work/pairs.tsv"
refuses "evaluating on a corpus that has changed" "has changed" evaluate --run "$work/tsv"
refuses "resuming on a corpus that has changed" "has changed" train --run "$work/tsv" --resume
trains "a swapped training with one vocabulary" "$work/swapped" "${small[@]}" --pairs "$work/pairs.kept" --swap \
  --shared-vocabulary --patience 1

# --- texts of one's own to validate and test on, and what is held out without -----------------------------------------
head -20 "$work/pairs.tsv" >"$work/valid.tsv"
tail -20 "$work/pairs.tsv" >"$work/test.tsv"
for part in valid test; do
  cut -f1 "$work/$part.tsv" >"$work/$part.en"
  cut -f2 "$work/$part.tsv" >"$work/$part.fr"
done
own=("${characters[@]}" --pairs "$work/pairs.kept" --validation-source "$work/valid.en" --validation-target "$work/valid.fr")
train "$work/own" "${own[@]}" --test-pairs "$work/test.tsv"
check "with validation and test files nothing is held out" grep -q '; train 60, validation 20, test 20' "$work/err"
"$program" evaluate --run "$work/own" --beam 1 >"$work/expected" 2>"$work/err"
check "evaluate measures the test file" grep -q 'sentences    20' "$work/expected"
"$program" evaluate --run "$work/own" --beam 1 --source "$work/test.en" --target "$work/test.fr" >"$work/out" 2>"$work/err"
check "as it does when the two files of it are named" cmp "$work/expected" "$work/out"
"$program" evaluate --run "$work/own" --beam 1 --pairs - <"$work/test.tsv" >"$work/out" 2>"$work/err"
check "or it comes on standard input" cmp "$work/expected" "$work/out"
echo no-tab | "$program" evaluate --run "$work/own" --pairs - >"$work/out" 2>"$work/err"
check "which is named when it is bad" grep -q 'standard input:1: no tab' "$work/err"
logs "a training with files of its own resumes" finished "$work/own" --resume
cp "$work/test.tsv" "$work/test.kept" && sed -i 1d "$work/test.tsv"
refuses "a test file that has changed" "test file has" evaluate --run "$work/own"
cp "$work/test.kept" "$work/test.tsv"
logs "a test file is not needed" '; train 60, validation 20, test 0' "$work/untested" "${own[@]}"
refuses "the test part of a training that had none" "no test files" evaluate --run "$work/untested"
prints "the validation part is there" 'sentences    20' evaluate --run "$work/untested" --part validation --beam 1
refuses "a part and another text" "--part has no effect" evaluate --run "$work/own" --part test --pairs "$work/test.tsv"
refuses "columns swapped of no pairs" "--swap has no effect" evaluate --run "$work/own" --swap
refuses "two texts at once" "--pairs excludes" evaluate --run "$work/own" --pairs "$work/test.tsv" \
  --source "$work/test.en" --target "$work/test.fr"
refuses "pairs from a pipe, which resuming could not read" "a pipe can be read only" train --run "$work/new" "${characters[@]}" \
  --pairs <(cat "$work/pairs.kept")
refuses "an output that cannot be written, before anything is translated" "no/such/out: cannot be written" evaluate \
  --run "$work/own" --output "$work/no/such/out"
printf 'we have one and two cats\tnous avons un et deux chats\n' >"$work/six-words"
train "$work/words" "${characters[@]}" --pairs "$work/pairs.kept" --max-words 4 --validation-pairs "$work/six-words"
check "--max-words leaves validation files whole" grep -q '; train 60, validation 1, test 0' "$work/err"
train "$work/tenth" "${characters[@]}" --pairs "$work/pairs.kept"
check "unless it is said otherwise, a tenth of few sentences is held out" grep -q '; train 54, validation 3, test 3' "$work/err"
check "without a warning" sh -c "! grep -q 'note:' '$work/err'"
logs "more than a fifth is a warning" 'note: 20 of 60 source sentences are held out' "$work/third" "${small[@]}" --pairs "$work/pairs.kept"

# --- sentences without tokens, which a SentencePiece model makes of its own mark for a space if it drops spaces around a text
train "$work/pieces" "${short[@]}" --tokenizer bpe --vocabulary 40 --pairs "$work/pairs.kept"
LC_ALL=C sed -e 1d -e 's/identity\x12\x00 \x00/identity\x12\x00 \x01/' "$work/pieces/source.vocabulary" >"$work/model"
check "there is a model that drops spaces" test "$(cmp -l <(sed 1d "$work/pieces/source.vocabulary") "$work/model" | wc -l)" = 1
{
  cat "$work/pairs.kept"
  for i in $(seq 40); do printf '\xe2\x96\x81\tdes riens %d\nnothings %d\t\xe2\x96\x81\n' "$i" "$i"; done
} >"$work/nothings"
printf '\xe2\x96\x81\tdes riens\n' >"$work/nothing.valid"
sed -n 1,3p "$work/pairs.kept" >>"$work/nothing.valid"
given=("${short[@]}" --source-model "$work/model" --target-model "$work/model" --samples 4)
trains "a training on sentences without tokens ends well" "$work/nothing" "${given[@]}" --pairs "$work/nothings" \
  --validation-pairs "$work/nothing.valid"
check "it says what it leaves out" grep -q 'left out 80 pairs with a side of no tokens' "$work/err"
check "their translations are empty" grep -q '▁  →    (reference: des riens)' "$work/err"
"$program" evaluate --run "$work/nothing" --part validation --output "$work/hypotheses" >"$work/out" 2>"$work/err"
check "evaluate measures the others" grep -q 'left out .* 1 pair with a side of no tokens' "$work/out"
check "and writes a line for every sentence" test "$(sed -n '1{/^$/p}' "$work/hypotheses" | wc -l)$(wc -l <"$work/hypotheses")" = 14
printf 'we have 1 cats\n\xe2\x96\x81\n \xc2\xa0\t\nwe have\t1 cats\nwe have 1 cats\n' |
  "$program" translate --run "$work/nothing" >"$work/out" 2>"$work/err"
check "translate answers them with an empty line, and white space too" test "$(sed -n 2,3p "$work/out" | tr -d '\n')" = ""
check "and a tab as a space" test "$(sed -n '1p;4p' "$work/out" | uniq | wc -l)" = 1
long=$(printf 'we have cats %.0s' $(seq 60))
printf '%s\t%s\n%s\t%s\n' "$long" "$long" "$long 1" "$long 2" >"$work/longs"
does "pairs that are all too long are scored" evaluate --run "$work/nothing" --beam 1 --pairs "$work/longs"
check "as far as that goes" sh -c "grep -q '^loss         none: .* over the limit' '$work/out' && grep -q '^chrF2' '$work/out'"
refuses "validation pairs that are all too long" "the validation pairs: .*no usable pairs" train --run "$work/new" "${given[@]}" \
  --pairs "$work/pairs.kept" --validation-pairs "$work/longs"

ends_here
