#!/usr/bin/env bash
# Same command, seed and number of threads: the same bits, by every command that computes; runs on one, two and three
# threads. The second time memory begins with other contents, and folders are elsewhere.
# Usage: same_bits.sh TRAIN_LANGUAGE_MODEL TRAIN_TRANSLATION GRADCHECK_ATTENTION
set -u
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"
language=$(realpath "$1") translation=$(realpath "$2") gradcheck=$(realpath "$3")
unset OMP_NUM_THREADS
mkdir "$work/first" "$work/second" "$work/second/elsewhere"
for i in $(seq 200); do printf 'The %dth cat sleeps on mat %d, and the dög does not.\n' "$i" "$((i * 7 % 31))"; done >"$work/text"
seq 1 40 | sed 's/.*/the cat sleeps ./' >"$work/sources"

# twice NAME COMMAND...: both times `here` in the command stands for a folder of its own; compares standard output and
# the files there. Times of day, durations and the reports, which contain them, are left out.
twice() {
  local name=$1
  shift
  (cd "$work/first" && "${@//here/$work/first}" >"$work/first/out" 2>"$work/err" <"$work/sources")
  check "$name: ends well" test $? = 0
  (cd "$work/second" && MALLOC_PERTURB_=165 "${@//here/$work/second/elsewhere}" \
    >"$work/second/elsewhere/out" 2>"$work/err" <"$work/sources")
  check "$name: ends well again" test $? = 0
  for folder in "$work/first" "$work/second/elsewhere"; do
    find "$folder" -name '*.json*' -exec sed -i -E 's/"([a-z_]*second[a-z_]*|elapsed)": ?(\{[^}]*\}|[^,}]*)//g' {} +
    sed -i "s|$folder|here|g; s/ *[0-9.]* ms//; s/ in [0-9.]* s.*//; s/, [0-9.]* s$//" "$folder/out"
  done
  check "$name: the same bits" diff -r --exclude='report.*' "$work/first" "$work/second/elsewhere"
}

twice "prepare" "$language" prepare --corpus "$work/text" --tokenizer bpe --vocabulary 300 --output here/tokens
for threads in 1 2 3; do
  twice "training a language model on $threads threads" "$language" train --run here/language$threads --tokens "$work/first/tokens" \
    --layers 2 --width 64 --heads 4 --context 32 --batch 8 --accumulate 2 --dropout 0.1 --steps 6 --warmup 2 --validate-every 3 \
    --validation-batches 2 --samples 1 --threads $threads
  twice "training a translation model on $threads threads" "$translation" train --run here/translation$threads \
    --grammar-pairs 400 --held-out 20 --width 64 --heads 4 --encoder-layers 1 --decoder-layers 1 --feed-forward 128 \
    --batch-tokens 512 --accumulate 2 --dropout 0.1 --steps 6 --warmup 2 --validate-every 3 --samples 1 --threads $threads
done
twice "generating" "$language" generate --run here/language2 --prompt 'The 7th' --temperature 1.5 \
  --max-tokens 50 --seed 3 --threads 2
twice "measuring a text" "$language" evaluate --run here/language2 --threads 2
twice "translating" "$translation" translate --run here/translation2 --threads 2
twice "drawing translations" "$translation" translate --run here/translation2 --sample --seed 3 \
  --threads 2
twice "measuring translations" "$translation" evaluate --run here/translation2 --output here/hypotheses \
  --threads 2
twice "checking gradients" "$gradcheck" --layer multi_head --elements 2 --json here/gradients.json --threads 2
twice "export" "$language" export --run here/language2 --output here/exported
twice "checking gradients in single precision" "$gradcheck" --layer multi_head --dtype f32 --threads 2

ends_here
