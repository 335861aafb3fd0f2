#!/usr/bin/env bash
# Remakes these run folders with the programs of another build, normally an older one: what that version trained, later
# versions must load, evaluate and resume.
# Usage: tests/golden/runs/make.sh FOLDER_OF_PROGRAMS
set -euo pipefail
programs=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")"
export LC_ALL=C.UTF-8
trap 'rm -rf resumed corpus.txt' EXIT

kFirst=6   # steps that a folder's training has run
kSecond=9  # the step that it is resumed to, in a copy, to record the losses

# make PROGRAM NAME OPTION...
make() {
  local program=$1 name=$2
  shift 2
  rm -rf "$name"
  "$programs/$program" train --run "$name" --threads 1 --device cpu --steps $kFirst --warmup 1 --validate-every 3 \
    --log-every 1 --samples 0 --learning-rate 0.05 "$@" 2>/dev/null
  cp -r "$name" resumed
  "$programs/$program" train --run resumed --resume --device cpu --steps $kSecond 2>/dev/null
  grep -v '"seconds"' resumed/metrics.jsonl >"$name/expected.jsonl"
  rm -r resumed
}

# A path that is absolute and yet the same in every checkout.
language() {
  local name=$1
  shift
  make train_language_model "$name" --corpus /proc/self/cwd/corpus.txt --validation-fraction 0.25 --layers 1 --heads 2 \
    --width 8 --context 8 --batch 2 --validation-kind exact "$@"
}
translation() {
  local name=$1
  shift
  make train_translation "$name" --grammar-pairs 6 --held-out 2 --tokenizer character --encoder-layers 1 \
    --decoder-layers 1 --heads 2 --width 8 --feed-forward 8 --max-length 48 "$@"
}

for _ in 1 2 3; do echo "a cab bade a bad cad fade"; done >corpus.txt
language language_mha --feed-forward 8 --dropout 0.1 --bias
language language_gqa --attention gqa --groups 1 --positions rotary --norm rms --feed-forward-kind swiglu --feed-forward 8
language language_mla --attention mla --latent-width 4 --query-latent-width 4 --rotary-width 2 --feed-forward 8 \
  --untied-head --prefix
translation translation_mha
translation translation_mla --attention mla --latent-width 4 --post-norm --activation gelu
translation translation_additive --attention additive --positions learned --shared-vocabulary --untied-head
