#!/usr/bin/env bash
# Models of transformers' families except MarianMT, as users see them: translate with a folder, fine-tune it, stop, resume,
# export. Usage: translation_families.sh PROGRAM
set -u
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"

folders=$(cd "$(dirname "${BASH_SOURCE[0]}")/../golden/translation_folders" && pwd)
printf 'the cat\tle chat\na dog sees\tun chien voit\nthe house\tla maison\n' >"$work/pairs.tsv"
for i in 1 2 3; do sed "s/ / $i /g" "$work/pairs.tsv" >>"$work/more"; done
cat "$work/more" >>"$work/pairs.tsv"
cut -f 1 "$work/pairs.tsv" >"$work/sources"
translated() { "$program" translate --run "$@" --max-tokens 12 --threads 1 <"$work/sources" 2>"$work/err" || echo "no $1"; }

for family in "t5 --source-prefix the_" bart mbart "m2m100 --target-language en"; do
  set -- $family
  name=$1 && shift
  trains "$name is fine-tuned" "$work/$name" --from "$folders/$name" --pairs "$work/pairs.tsv" --held-out 4 --steps 2 \
    --warmup 0 --validate-every 9 --samples 0 --threads 1 --learning-rate 1e-2 "$@"
  trains "$name goes on" "$work/$name" --resume --steps 3
  does "$name is exported" export --run "$work/$name" --output "$work/$name.folder"
  check "with the tokenizer's files" test "$(cd "$work/$name.folder" && echo *)" = "$(cd "$folders/$name" && echo *)"
  test "$name" = t5 || set --
  sed -i '/no_repeat_ngram_size\|min_length/d' "$work/$name.folder/generation_config.json"  # of BART alone
  check "the folder of $name writes what its run writes" test \
    "$(translated "$work/$name" --beam 4 --length-penalty 2 --early-stopping true)" = \
    "$(translated "$work/$name.folder" --beam 4 --length-penalty 2 --early-stopping true "$@")"
done
check "languages are in the exported files" grep -q '"tgt_lang": "en"' "$work/m2m100.folder/tokenizer_config.json"
refuses "a language that the model lacks" "--target-language must be one of .*, fr, .*; got klingon" \
  translate --run "$folders/m2m100" --target-language klingon 'the cat'
refuses "a language of a model of its own" "this model has none" translate --run "$folders/t5" --target-language fr 'a'
refuses "a prefix of an export" "--source-prefix" export --run "$work/t5" --output "$work/new" --source-prefix the_
refuses "another tokenizer" "--tokenizer bpe contradicts --from .*, which has transformers" \
  train --run "$work/new" --from "$folders/t5" --pairs "$work/pairs.tsv" --tokenizer bpe

ends_here
