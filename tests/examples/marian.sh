#!/usr/bin/env bash
# Translation models to transformers' MarianMT and back, as users see them: export, translate with the folder,
# fine-tune it, resume. Usage: marian.sh PROGRAM
set -u
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"

tiny=(--grammar-pairs 200 --held-out 10 --threads 1 --samples 0 --validate-every 9 --batch-tokens 512)
small=(--width 16 --heads 2 --encoder-layers 1 --decoder-layers 1 --feed-forward 32 --max-length 40)
printf 'The cat sleeps.\tLe chat dort.\nA dog sees him.\tUn chien le voit.\n' >"$work/pairs.tsv"
for i in 1 2 3; do cat "$work/pairs.tsv"; done | sed 's/dog/dog &/; s/cat/small &/' >>"$work/pairs.tsv"
cut -f 1 "$work/pairs.tsv" >"$work/sources"
# translated FOLDER [OPTIONS...]: on standard output; something else for each folder where the program fails.
translated() { "$program" translate --beam 1 --max-tokens 12 --threads 1 --run "$@" <"$work/sources" 2>"$work/err" || echo "no $1"; }

trains "the preset trains" "$work/run" --preset translation-marian "${tiny[@]}" "${small[@]}" --vocabulary 300 --steps 2 --warmup 0
does "and exports" export --run "$work/run" --output "$work/marian"
check "the files that transformers reads" test "$(cd "$work/marian" && echo *)" = \
  "config.json generation_config.json model.safetensors source.spm target.spm tokenizer_config.json vocab.json"
refuses "an export over another one" "marian" export --run "$work/run" --output "$work/marian"
check "the folder translates as the run does" test "$(translated "$work/run")" = "$(translated "$work/marian")"
check "also beams, by the same rules" test \
  "$(translated "$work/run" --beam 4 --length-penalty 1 --early-stopping true --max-tokens 126)" = \
  "$(translated "$work/marian" --beam 4 --max-tokens 126)"
prints "and is measured" '^loss  *[0-9.]* nats per token' evaluate --run "$work/marian" --pairs "$work/pairs.tsv" --beam 1 --max-tokens 9
refuses "measuring a folder without a text" "pass --pairs, or --source and --target" evaluate --run "$work/marian"

mkdir "$work/bare" && cp "$work/marian/config.json" "$work/marian/model.safetensors" "$work/bare"
refuses "a folder without a tokenizer" "has no tokenizer: none of .* and source.spm" translate --run "$work/bare" 'The cat.'

tune=(--from "$work/marian" --pairs "$work/pairs.tsv" "${tiny[@]:4}" --held-out 2)
trains "fine-tuning the folder" "$work/tuned" "${tune[@]}" --steps 2 --warmup 0 --dropout 0.2
trains "it goes on" "$work/tuned" --resume --steps 3
refuses "another width" "--width 32 contradicts --from .*, which has 16" train --run "$work/new" "${tune[@]}" --width 32
does "a fine-tuned run exports" export --run "$work/tuned" --output "$work/again"
check "with the same vocabulary" cmp "$work/marian/vocab.json" "$work/again/vocab.json"
check "and translates as its run does" test "$(translated "$work/tuned")" = "$(translated "$work/again")"

"$program" export --run "$work/run" --output "$work/own" --format marian-npz >"$work/out" 2>"$work/err"
check "the files that Marian reads" test "$(cd "$work/own" && echo *)" = "decoder.yml model.npz source.spm target.spm vocab.yml"
check "Marian's folder translates as the run does" test "$(translated "$work/run")" = "$(translated "$work/own")"
refuses "measuring it without a text" "pass --pairs, or --source and --target" evaluate --run "$work/own"
trains "fine-tuning it" "$work/npz" --from "$work/own" "${tune[@]:2}" --steps 2 --warmup 0
sed 's/\t/\tÊ/' "$work/pairs.tsv" >"$work/odd.tsv"
train "$work/odd" --from "$work/own" --pairs "$work/odd.tsv" "${tune[@]:4}" --steps 1 --warmup 0
check "a vocabulary without a character is noted" grep -q 'the vocabulary changes [1-9].*"Ê.*" comes back as "[LU]' "$work/err"
"$program" export --run "$work/npz" --output "$work/own2" --format marian-npz >"$work/out" 2>"$work/err"
check "and back" cmp "$work/own/vocab.yml" "$work/own2/vocab.yml"
head -c 9000 "$work/own/model.npz" >"$work/own2/model.npz"
refuses "a model cut short" "own2/model.npz: is not a whole archive" translate --run "$work/own2" 'The cat.'
rm "$work/own2/source.spm"
refuses "a vocabulary that is gone" "own2/source.spm" translate --run "$work/own2" 'The cat.'

train "$work/other" "${tiny[@]}" "${small[@]}" --steps 1 --warmup 0
refuses "a model that MarianMT cannot express" "a model trained with .*--post-norm" export --run "$work/other" --output "$work/new"
train "$work/apart" --preset translation-marian --shared-vocabulary=false "${tiny[@]}" "${small[@]}" --steps 1 --warmup 0
"$program" export --run "$work/apart" --output "$work/two" >"$work/out" 2>"$work/err"
check "vocabularies of two sizes export" test -e "$work/two/target_vocab.json"
check "and translate as the run does" test "$(translated "$work/apart")" = "$(translated "$work/two")"
train "$work/words" --preset translation-marian --tokenizer word "${tiny[@]}" "${small[@]}" --steps 1 --warmup 0
refuses "words" "try a model trained with --tokenizer marian, unigram or bpe" export --run "$work/words" --output "$work/new"
check "nothing is left of a refused export" test ! -e "$work/new" -a ! -e "$work/new.partial"

ends_here
