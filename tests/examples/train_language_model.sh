#!/usr/bin/env bash
# The program train_language_model as its users see it: training, resume after Ctrl-C, generation,
# evaluation, preparation, export, bad input, damaged files, a full disk. Usage: train_language_model.sh PROGRAM
set -u
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"

sizes=(--layers 2 --width 32 --heads 2 --context 32 --batch 8 --accumulate 2 --dropout 0.1 --steps 60 --warmup 10
  --validate-every 20 --checkpoint-every 7 --validation-batches 2 --validation-kind estimate
  --samples 1 --log-every 10 --threads 2)
tiny=("${sizes[@]}" --validation-fraction 0.01)
generate() { "$program" generate --run "$@" 2>"$work/err" </dev/null; }
is_utf8() { iconv -f UTF-8 -t UTF-8 "$1"; }

for i in $(seq 300); do
  printf 'The %dth cat sleeps on mat %d, and the dög — a big one — does not 🐈.\n' "$i" "$((i * 7 % 31))"
done >"$work/text"

# --- a whole training on the built-in text, then the same one interrupted ------------------------------
resumes_to_the_same "${tiny[@]}" --keep-checkpoints 2 -- tokenizer tokens/train.tokens tokens/validation.tokens tokens/tokenizer
check "it says what it trains on" grep -q "the built-in text" "$work/err.whole"
check "it says what the model is" grep -q 'layers=2, width=32, context=32, heads=2, .*parameters' "$work/err.whole"

# --- one program trains in a folder; layers recomputed -----------------------------------------------------------
reads() { generate "$1" --prompt int --max-tokens 5; }
keeps_others_out reads "${tiny[@]}"
recomputes_layers "${tiny[@]}" --keep-checkpoints 2

# --- its configuration and parameters ------------------------------------------------------------------------
summarises "${tiny[@]}" --keep-checkpoints 2
reports "${tiny[@]}" --keep-checkpoints 2
check "a dry run says what its model is exported to" grep -qx 'export  *transformers (GPT-2); .*' "$work/dry-run"
sweeps "${tiny[@]}"

# --- a text of one's own, and what is made of it --------------------------------------------------------------
(cd "$work" && "$program" train --run mine "${tiny[@]}" --validation-fraction 0.1 --corpus text) >"$work/out" 2>"$work/err"
check "a training on a file, the path relative" test $? = 0
run=$work/mine
generate "$run" --prompt 'The 7th' --greedy --max-tokens 90 >"$work/greedy"
check "generate answers" test $? = 0
check "the text begins with the prompt" grep -q '^The 7th.' "$work/greedy"
check "it says how fast it was" grep -q '90 tokens after a prompt of 7 in .* tokens/s' "$work/err"
for cache in contiguous paged none; do
  generate "$run" --prompt 'The 7th' --greedy --max-tokens 90 --cache $cache >"$work/out"
  check "greedy text is the same with --cache $cache, beyond the context too" cmp "$work/out" "$work/greedy"
done
printf 'The 7th\n' | "$program" generate --run "$run" --greedy --max-tokens 90 >"$work/out" 2>"$work/err"
check "the prompt may come from standard input" cmp "$work/out" "$work/greedy"
printf '\357\273\277The 7th\n' | "$program" generate --run "$run" --greedy --max-tokens 90 >"$work/out" 2>"$work/err"
check "or there behind a byte order mark" cmp "$work/out" "$work/greedy"
"$program" generate --run "$run" <"$work" >"$work/out" 2>"$work/err"
check "a folder there is refused" test $? = 2
check "the error names standard input" grep -q 'standard input: cannot be read' "$work/err"
generate "$run" --prompt 'The 7th' --greedy --max-tokens 90 --only-new >"$work/continued"
check "--only-new leaves the prompt out" test "The 7th$(cat "$work/continued")" = "$(cat "$work/greedy")"

drawn=(--prompt 'The ' --max-tokens 60 --temperature 1.5)
generate "$run" "${drawn[@]}" --seed 3 >"$work/drawn"
generate "$run" "${drawn[@]}" --seed 4 >"$work/otherwise"
check "another seed draws another" differ "$work/drawn" "$work/otherwise"
for choice in '--top-k 1' '--top-p 0.0001' '--min-p 1' '--repetition-penalty 2'; do
  generate "$run" "${drawn[@]}" --seed 3 $choice >"$work/out"
  check "$choice changes what is drawn" differ "$work/drawn" "$work/out"
done
generate "$run" "${drawn[@]}" --seed 3 --samples 3 >"$work/samples"
check "three samples have two separators" test "$(grep -c '^---------------$' "$work/samples")" = 2
check "the first of them is what is drawn alone" sh -c \
  "sed '/^---------------\$/,\$d' '$work/samples' | head -c \$((\$(wc -c <'$work/drawn') - 1)) | cmp -n \$((\$(wc -c <'$work/drawn') - 1)) - '$work/drawn'"
stop=$(head -1 "$work/continued" | cut -c11-13)  # a text that comes
generate "$run" --prompt 'The 7th' --greedy --max-tokens 90 --only-new --stop zzz --stop "$stop" >"$work/stopped.txt"
shown=$(cat "$work/stopped.txt")
check "a stop string ends the text before it" test "${shown/"$stop"/}" = "$shown"
check "what comes before it is the same" test "$(cut -c1-$((${#shown} + ${#stop})) "$work/continued" | head -1)" = "$shown$stop"
generate "$run" --prompt '' --max-tokens 20 >"$work/out"
check "an empty prompt begins a text" sh -c "test \$(wc -m <'$work/out') -ge 20"
generate "$run" --prompt 'The' --average 2 --max-tokens 5 >"$work/out"
check "--average of a run that keeps one set of weights says so" grep -q -- '--keep-checkpoints' "$work/err"
does "--average of the weights kept" generate --run "$work/whole" --prompt 'int' --greedy --average 2 --max-tokens 5

check "whoever reads may stop reading" bash -c \
  "set -o pipefail; '$program' generate --run '$run' --prompt The --max-tokens 3000 2>/dev/null </dev/null | head -c 20"
"$program" generate --run "$run" --prompt The >/dev/full 2>"$work/err"
check "output that cannot be written: exit code 2" test $? = 2
check "output that cannot be written is named" grep -q 'standard output' "$work/err"
"$program" generate --run "$run" --prompt 'The ' --max-tokens 10000000 >"$work/endless" 2>"$work/err" </dev/null &
victim=$!
for _ in $(seq 500); do
  test "$(wc -c <"$work/endless")" -gt 100 && break
  sleep 0.01
done
check "text comes as it is drawn" test "$(wc -c <"$work/endless")" -gt 100
kill -TERM $victim
wait $victim
check "Ctrl-C ends a text with 130" test $? = 130
check "what had come by then is whole" is_utf8 "$work/endless"
refuses "a prompt with an unknown character" "knows only the .* at byte 0" generate --run "$run" --prompt '猫'
refuses "a prompt that is not UTF-8" "UTF-8" generate --run "$run" --prompt $'\xff'

mkdir "$work/texts" && cp "$work/text" "$work/texts/counts" && printf 'd\xf6g' >"$work/texts/latin-1" && : >"$work/texts/.hidden"
"$program" evaluate --run "$run" --corpus "$work/texts" >"$work/out" 2>"$work/err"
check "of a folder it is said what counts" grep -q 'corpus: 1 file (.*texts/counts), .*1 hidden (.*texts/.hidden)' "$work/err"
check "and what is not UTF-8" grep -q '1 that is not UTF-8 text (.*texts/latin-1)' "$work/err"
prints "evaluate prints the exact mean" 'exact .*nats per token, perplexity .*bits per byte' evaluate --run "$run"
check "evaluate prints the estimate" grep -q 'estimated .*random batches of 8 x 32' "$work/out"
"$program" evaluate --run "$run" --json >"$work/json" 2>"$work/err"
check "evaluate --json has the same numbers" test \
  "$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$work/json" | LC_ALL=C xargs printf '%.4f nats per token\n')" = \
  "$(grep -o '[0-9.]* nats per token' "$work/out")"
prints "evaluate measures another text" 'exact' evaluate --run "$run" --corpus "$work/text"
"$program" evaluate --run "$run" --corpus "$work/text" --threads 1 >"$work/again" 2>"$work/err"
check "on one thread to the same numbers" alike "$work/out" "$work/again" 1e-4
generate "$run" --prompt 'The 7th' --greedy --max-tokens 90 --threads 1 >"$work/out"
check "generate writes the same on one thread" cmp "$work/out" "$work/greedy"

# --- bytes, bpe, prefix: valid UTF-8 always -----------------------------------------------------------------------
small=("${tiny[@]}" --validation-fraction 0.1 --steps 12 --corpus "$work/text")
trains "a prefix model of bytes with short convolutions trains" "$work/bytes" "${small[@]}" --tokenizer byte \
  --objective prefix --short-convolution 3
trains "an encoder of bytes trains on masked tokens" "$work/encoder" "${small[@]}" --tokenizer byte --objective masked
prints "evaluate measures masked tokens, and no bytes" 'exact .*perplexity [0-9.]*$' evaluate --run "$work/encoder"
printf ab >"$work/two"
refuses "a text too short for a masked token" "no answer or masked token" evaluate --run "$work/encoder" --corpus "$work/two"
refuses "continuing a text with an encoder" "cannot continue a text" generate --run "$work/encoder" --prompt 'The cat'
refuses "samples of an encoder" "--samples has no effect with an encoder" generate --run "$work/encoder" --prompt a --samples 2
generate "$work/bytes" --prompt 'dög' --temperature 3 --top-k 0 --max-tokens 300 >"$work/out"
check "what an untrained model of bytes writes is valid UTF-8" is_utf8 "$work/out"
"$program" prepare --corpus "$work/text" --tokenizer bpe --vocabulary 300 --output "$work/prepared" >"$work/out" 2>"$work/err"
check "prepare makes a tokenizer and token files" sh -c \
  "grep -q 'bpe tokenizer of 300' '$work/out' && test -s '$work/prepared/train.tokens'"
for part in train validation; do "$(dirname "${BASH_SOURCE[0]}")/as_llm_c.sh" "$work/prepared/$part.tokens" >"$work/$part.bin"; done
"$program" tokens --train "$work/train.bin" --validation "$work/validation.bin" --tokenizer-model "$work/prepared" \
  --output "$work/back" >"$work/out" 2>"$work/err"
check "files of llm.c are read" sh -c \
  "cmp '$work/prepared/train.tokens' '$work/back/train.tokens' && cmp '$work/prepared/validation.tokens' '$work/back/validation.tokens'"
refuses "tokens without a tokenizer" "--tokenizer-model" tokens --train "$work/train.bin" --validation "$work/train.bin" \
  --output "$work/none"
refuses "preparing into a folder that is there" "already" prepare --corpus "$work/nothere" --output "$work/prepared"
trains "a training on prepared tokens" "$work/bpe" "${sizes[@]}" --steps 12 --tokens "$work/prepared"
mkdir "$work/around" && cp -r "$work/prepared" "$work/around/tokens"
does "a summary with prepared tokens in the run folder" train --run "$work/around" "${sizes[@]}" --tokens "$work/around/tokens" --summary
check "leaves them there" test -s "$work/around/tokens/train.tokens"
train "$work/direct" "${small[@]}" --tokenizer bpe --vocabulary 300
check "the same text, not prepared before, gives the same weights" \
  cmp "$work/bpe/weights.safetensors" "$work/direct/weights.safetensors"
mv "$work/prepared" "$work/moved"
refuses "resuming when the prepared folder is gone" "prepared" train --run "$work/bpe" --resume
does "generating does not need it" generate --run "$work/bpe" --prompt 'The cat' --greedy --max-tokens 20
trains "fine-tuning a run on another text" "$work/tuned" --from "$work/bpe" "${small[@]:8}" --layers 2 --steps 11
check "it says which settings are not the run's" grep -q "note: settings that differ from that run's (in brackets): .*--steps 11 (" "$work/err"
check "fine-tuning keeps the tokenizer" cmp "$work/bpe/tokenizer" "$work/tuned/tokenizer"
refuses "fine-tuning to another width" "--width 64 contradicts --from" train --run "$work/new" --from "$work/bpe" --width 64
cp -r "$work/bpe" "$work/tokenless" && rm "$work/tokenless/tokenizer"
refuses "fine-tuning without a tokenizer" "has no tokenizer.*--tokenizer-model" train --run "$work/new" --from "$work/tokenless"
train "$work/retokenized" --from "$work/tokenless" --tokenizer-model "$work/bpe/tokenizer" "${small[@]:8}" --layers 2 --steps 11
check "fine-tuning with the tokenizer that is named" cmp "$work/tuned/weights.safetensors" "$work/retokenized/weights.safetensors"
refuses "a tokenizer of another size" "of 256 tokens, but the model in .* has 300" \
  train --run "$work/new" --from "$work/tokenless" --tokenizer-model "$work/bytes/tokenizer"

# --- instructions: loss on answers, documents apart ---------------------------------------------------------------
for i in $(seq 400); do printf '{"prompt": "%d plus 1 is ", "answer": "%d"}\n' "$i" $((i + 1)); done >"$work/pairs.jsonl"
pairs=(--corpus "$work/pairs.jsonl" --loss-on answers)
answering=("${sizes[@]}" --steps 12 --documents apart)
"$program" prepare "${pairs[@]}" --tokenizer sentencepiece --vocabulary 280 --output "$work/instructions" >"$work/out" 2>"$work/err"
check "prepare marks answers" test -s "$work/instructions/train.answers"
trains "training on answers, with documents apart" "$work/answers" "${answering[@]}" --tokens "$work/instructions" \
  --loss-on answers
prints "evaluate measures answers alone" 'exact .*nats per token' evaluate --run "$work/answers"
grep ^exact "$work/out" >"$work/held-out"
tail -n 40 "$work/pairs.jsonl" >"$work/last.jsonl"
"$program" evaluate --run "$work/answers" --corpus "$work/last.jsonl" 2>"$work/err" | grep ^exact >"$work/given"
check "and those of a file of instructions" cmp "$work/held-out" "$work/given"
trains "fine-tuning on instructions" "$work/fine" "${answering[@]:8}" "${pairs[@]}" --from "$work/answers"
ln -s "$work/instructions" "$work/prepared"
refuses "evaluating on tokens that have changed" "has changed since the run was trained" evaluate --run "$work/bpe"
refuses "answers of a plain text" "is not an instruction" train --run "$work/new" --corpus "$work/text" --loss-on answers
head -n 1 "$work/pairs.jsonl" >"$work/pair.jsonl"
refuses "a single instruction" "of 1 instruction, 0 would be for training and 1 for validation" train --run "$work/new" \
  --corpus "$work/pair.jsonl" --loss-on answers --tokenizer sentencepiece
refuses "answers without marks" "does not say which tokens are answers" train --run "$work/new" --tokens "$work/moved" --loss-on answers
refuses "answers of the built-in text" "--loss-on answers needs --corpus" train --run "$work/new" --loss-on answers
refuses "answers without an end" "has none; try --tokenizer sentencepiece" train --run "$work/new" "${pairs[@]}"
refuses "documents without an end" "--documents apart needs a tokenizer" train --run "$work/new" --corpus "$work/text" --documents apart

# --- export, and the folders of other programs ----------------------------------------------------------------------
trains "a small Llama of a preset trains" "$work/llama" --preset stories-260k --width 32 --heads 4 --groups 2 \
  --feed-forward 48 --layers 2 --context 32 --batch 4 --steps 12 --warmup 2 --validate-every 6 --validation-batches 2 \
  --vocabulary 300 --corpus "$work/text" --threads 2
check "a training says what its model is exported to" grep -qxF 'export: transformers and gguf (Llama)' "$work/err"
for model in mine bytes bpe llama; do
  if [ $model = bytes ]; then
    refuses "exporting a prefix model" "^[^/]*got .*--objective prefix" export --run "$work/bytes" --output "$work/exported-bytes"
    check "what could not be exported leaves nothing" test ! -e "$work/exported-bytes"
    continue
  fi
  does "exporting $model" export --run "$work/$model" --output "$work/exported-$model"
  generate "$work/$model" --prompt 'The cat' --greedy --max-tokens 20 >"$work/ours"
  generate "$work/exported-$model" --prompt 'The cat' --greedy --max-tokens 20 >"$work/theirs"
  check "$model, exported, writes the same" cmp "$work/ours" "$work/theirs"
done
does "exporting llama as GGUF" export --run "$work/llama" --output "$work/llama.gguf" --format gguf --type q8_0
refuses "exporting to a folder that is there" "already" export --run "$run" --output "$work/exported-mine"
refuses "resuming an exported model" "no checkpoint" train --run "$work/exported-mine" --resume
refuses "training in the folder of an exported model" "holds another program's model" train --run "$work/exported-mine" "${tiny[@]}"
prints "an exported model is measured" exact evaluate --run "$work/exported-bpe" --corpus "$work/text"
trains "an exported model is fine-tuned" "$work/retuned" --from "$work/exported-llama" --corpus "$work/text" --steps 11 \
  --warmup 2 --threads 2 --batch 4

# --- adapters of an exported model ------------------------------------------------------------------------------------
adapting=(--from "$work/exported-llama" --corpus "$work/text" --lora 2 --learning-rate 0.01 --steps 12 --checkpoint-every 6
  --earlier-checkpoints 1 --warmup 2 --threads 2 --batch 4)
trains "adapters are trained" "$work/adapted" "${adapting[@]}"
check "it says how much is frozen" grep -q ' of the parameters are frozen' "$work/err"
cp -r "$work/adapted" "$work/readapted"
mv "$work/readapted/checkpoint-6.safetensors" "$work/readapted/checkpoint.safetensors"
trains "adapters are resumed" "$work/readapted" --resume
check "adapters that are resumed are those of the whole run" cmp "$work/adapted/weights.safetensors" "$work/readapted/weights.safetensors"
"$program" export --run "$work/adapted" --output "$work/adapters" --adapters >"$work/out" 2>"$work/err"
check "exporting adapters alone" test $? = 0 -a "$(ls "$work/adapters" | tr '\n' ' ')" = "adapter_config.json adapter_model.safetensors "
does "exporting a model with its adapters" export --run "$work/adapted" --output "$work/merged"
generate "$work/adapted" --prompt 'The cat' --greedy --max-tokens 20 >"$work/ours"
for model in adapters merged; do
  generate "$work/$model" --prompt 'The cat' --greedy --max-tokens 20 >"$work/theirs"
  check "$model write the same" cmp "$work/ours" "$work/theirs"
done
generate "$work/exported-llama" --prompt 'The cat' --greedy --max-tokens 20 >"$work/theirs"
check "the model without adapters does not" differ "$work/ours" "$work/theirs"
trains "a model with adapters is adapted again" "$work/twice" "${adapting[@]:2}" --from "$work/adapters" --lora 1 \
  --lora-targets '*.up'
refuses "exporting adapters of adapters alone" "has adapters for a model with those in " \
  export --run "$work/twice" --output "$work/new" --adapters
trains "adapters of a run are trained" "$work/adapted-run" "${adapting[@]:2}" --from "$work/retuned"
does "exporting them alone" export --run "$work/adapted-run" --output "$work/adapters-run" --adapters
prints "they are measured on the text of the run that they are for" exact evaluate --run "$work/adapters-run"
refuses "a tokenizer for adapters" "--tokenizer-model has no effect with --adapters" \
  export --run "$work/adapted-run" --output "$work/new" --adapters --tokenizer-model "$work/moved"
refuses "adapters without a model" "--lora has no effect without --from" train --run "$work/new" --lora 2
refuses "adapters of no layer" "must match a linear layer; got head" train --run "$work/new" "${adapting[@]}" --lora-targets head
refuses "the scale of no adapters" "--lora-alpha has no effect without --lora" \
  train --run "$work/new" --from "$work/exported-llama" --corpus "$work/text" --lora-alpha 3
for model in llama exported-llama; do
  refuses "exporting adapters that $model lacks" "has no adapters" export --run "$work/$model" --output "$work/new" --adapters
done

refuses "exporting adapters alone" "is a folder of adapters already" export --run "$work/adapters" --output "$work/new" --adapters

rm -f "$work/exported-bpe/merges.txt"
refuses "a folder without a tokenizer" "has no tokenizer.*--tokenizer-model" generate --run "$work/exported-bpe" --prompt a
generate "$work/exported-bpe" --prompt 'The cat' --greedy --max-tokens 20 --tokenizer-model "$work/moved" >"$work/theirs"
generate "$work/bpe" --prompt 'The cat' --greedy --max-tokens 20 >"$work/ours"
check "another folder's tokenizer is used when named" cmp "$work/ours" "$work/theirs"
mkdir "$work/bare" && cp "$work/exported-llama/model.safetensors" "$work/bare"
refuses "weights without a config.json" "has no config.json" generate --run "$work/bare" --prompt a

# --- bad input ---------------------------------------------------------------------------------------------------------
refuses_bad_options "${tiny[@]}"
printf 'good line\nbad \xff byte\n' >"$work/invalid"
: >"$work/empty"
printf 'short' >"$work/short"
refuses "a budget shorter than the warm-up" "needs more --steps than --warmup" \
  train --run "$work/new" --warmup 1500 --time-budget 0.001
cp "$work/text" "$work"/$'caf\xe9'
refuses "options of a sweep that are not UTF-8" "must be in UTF-8" sweep --runs "$work/new" --vary width 32 -- --corpus "$work"/$'caf\xe9'
refuses "a path that is not UTF-8" "--corpus must be a path in UTF-8" train --run "$work/new" --corpus "$work"/$'caf\xe9'
refuses "a run within its corpus" "training.lock: is a run's" train --run "$work/texts/run" "${tiny[@]}" --corpus "$work/texts"
refuses "a missing file" "nothere: does not exist" train --run "$work/new" --corpus "$work/nothere"
refuses "an empty file" "empty: holds no text" train --run "$work/new" --corpus "$work/empty"
refuses "invalid UTF-8" "invalid:2" train --run "$work/new" --corpus "$work/invalid"
refuses "a text shorter than a row" "holds 1 token; .* try a longer text" train --run "$work/new" --corpus "$work/short"
refuses "tokens that are not there" "nothere/tokenizer: cannot be opened" train --run "$work/new" --tokens "$work/nothere"
refuses "resuming with a preset" "--preset" train --run "$work/whole" --resume --preset stories-260k
refuses "greedy at a temperature" "--greedy" generate --run "$run" --prompt a --greedy --temperature 1
refuses "generating with no model" "nothere: is not a folder" generate --run "$work/nothere" --prompt a
refuses "a run of too long a name" "json: File name too long" generate --run "$(printf '%0300d' 0 | tr 0 a)" --prompt a
refuses "preparing what is not there" "nothere: does not exist" prepare --corpus "$work/nothere" --output "$work/unprepared"
check "a refused preparation leaves nothing" sh -c "! ls '$work' | grep -q unprepared"
for _ in $(seq 800); do cat "$work/text"; done >"$work/text800"
cat "$work"/text800{,,,} >"$work/large"

# interrupts NAME FOLDER ARGUMENTS...: once there is a file in FOLDER, Ctrl-C ends the program and removes it.
interrupts() {
  local name=$1 folder=$2 code
  shift 2
  mkdir "$folder"
  TMPDIR=$folder "$program" "$@" >/dev/null 2>"$work/err" &
  victim=$!
  for _ in $(seq 3000); do
    test -n "$(ls "$folder")" && break
    sleep 0.01
  done
  kill -TERM $victim
  wait $victim
  code=$?
  check "Ctrl-C ends $name with 130 (was $code)" test $code = 130
  check "Ctrl-C ends $name and leaves nothing" test -z "$(ls "$folder")"
}
interrupts "a preparation" "$work/unprepared" prepare --corpus "$work/large" --tokenizer-model "$work/moved" \
  --output "$work/unprepared/tokens"
interrupts "a measurement" "$work/unmeasured" evaluate --run "$run" --corpus "$work/large"

# --- damaged files -----------------------------------------------------------------------------------------------------
intact="$run"
refuses_damaged "truncated weights" "weights.safetensors" 'truncate -s -100 weights.safetensors' generate --prompt a
refuses_damaged "a truncated checkpoint" "checkpoint.safetensors" 'truncate -s 5000 checkpoint.safetensors' train --resume
refuses_damaged "truncated tokens" "train.tokens" 'truncate -s -2 tokens/train.tokens' train --resume
refuses_damaged "another run's tokenizer" "tokenizer" 'cp "$work/whole/tokenizer" tokenizer' generate --prompt a
refuses_damaged "a fingerprint that is text" "config.json: was not written by this program" \
  'field tokenizer_fingerprint \"none\"' generate --prompt a
refuses_damaged "a model of billions of layers" "tensors are too few" 'field layers 2000000000' generate --prompt a
refuses_damaged "a model of exabytes" "the weights do not fit the model: .* is too large" \
  'field width 2000000000' generate --prompt a
refuses_damaged "a config that would clear the terminal" '"\\u001b\[2J"' 'field heads "\"\\\\u001b[2J\""' generate --prompt a
for file in config.json tokenizer weights.safetensors; do
  refuses_damaged "$file of a terabyte" "$file: .*bytes" "claims_a_terabyte $file" generate --prompt a
done
for file in checkpoint.safetensors tokens/train.tokens metrics.jsonl; do
  refuses_damaged "$file of a terabyte" "$file: .*bytes" "claims_a_terabyte $file" train --resume
done
for file in vocab.json merges.txt tokenizer.json tokenizer.model; do
  mkdir -p "$work/foreign/$file"
  echo '{}' | tee "$work/foreign/$file/vocab.json" >"$work/foreign/$file/merges.txt"
  claims_a_terabyte "$work/foreign/$file/$file"
  refuses "$file of a terabyte" "$file: .*bytes are too many" prepare --corpus "$work/text" --output "$work/unprepared" \
    --tokenizer-model "$work/foreign/$file"
done
claims_a_terabyte "$work/holes"
refuses "a text of a terabyte without a character" "holes:1: a NUL" prepare --corpus "$work/holes" --output "$work/unprepared" \
  --tokenizer character

# --- a full disk: no file may grow beyond a few blocks ---------------------------------------------------------------------
(ulimit -f 8 && "$program" train --run "$work/full" "${small[@]}") >/dev/null 2>"$work/err"
check "a full disk: exit code 2" test $? = 2
check "a full disk: the message names the file" grep -q 'full/' "$work/err"
check "a full disk: no temporary file stays" sh -c "! find '$work/full' 2>/dev/null | grep -q partial"

# --- help ------------------------------------------------------------------------------------------------------------------
for command in train generate evaluate prepare tokens export sweep; do
  does "$command --help" $command --help
  check "$command --help names its options" grep -q -- '--' "$work/out"
done
prints "the help shows a preset's defaults" '--width.*768' train --help --preset gpt2-124m
check "the help says what the presets are" grep -q 'shakespeare-char-cpu: ' "$work/out"

ends_here
