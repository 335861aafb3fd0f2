#!/usr/bin/env bash
# What the program train_translation does with bad input and damaged files. Usage: refused_translation.sh PROGRAM
set -u
. "$(dirname "${BASH_SOURCE[0]}")/program_test.sh" "$1"

tiny=(--grammar-pairs 400 --held-out 20 --tokenizer word --width 16 --heads 2 --encoder-layers 1 --decoder-layers 1
  --feed-forward 32 --batch-tokens 256 --steps 60 --warmup 10 --validate-every 60 --checkpoint-every 7 --samples 0 --threads 2)
trains "a run to damage" "$work/whole" "${tiny[@]}"
for i in $(seq 60); do printf 'we have %d cats\tnous avons %d chats\n' "$i" "$i"; done >"$work/pairs.tsv"
cut -f1 "$work/pairs.tsv" >"$work/pairs.en"
cut -f2 "$work/pairs.tsv" >"$work/pairs.fr"

# --- bad input ---------------------------------------------------------------------------------------------
refuses_bad_options "${tiny[@]}"
printf 'a b\tc d\nno tab here\n' >"$work/untabbed"
printf 'a b\tc d\nbad \xff byte\tx\n' >"$work/invalid"
: >"$work/empty"
for i in $(seq 50); do printf 'this sentence number %d is long\tcette phrase est longue %d\n' "$i" "$i"; done >"$work/long"
refuses "a missing file" "nothere: cannot be opened" train --run "$work/new" --pairs "$work/nothere"
refuses "an empty file" "empty: is empty" train --run "$work/new" --pairs "$work/empty"
refuses "a line without a tab" "untabbed:2" train --run "$work/new" --pairs "$work/untabbed"
refuses "invalid UTF-8" "invalid:2" train --run "$work/new" --pairs "$work/invalid"
printf 'a b\tc d\na\0\t\0c\0\n' >"$work/utf16"
refuses "UTF-16, which reads as UTF-8" "utf16:2: a NUL at byte 2 of the line" train --run "$work/new" --pairs "$work/utf16"
refuses "no usable pair" "long: no usable pairs" train --run "$work/new" --pairs "$work/long" --max-words 2
refuses "a prefix that is not UTF-8" "--source-prefix must be text in UTF-8" train --run "$work/new" --source-prefix $'\xff'
refuses "translating with no model" "is not a folder" translate --run "$work/nothere"
refuses "a run without a name" "must not be empty" translate --run ""
mkdir "$work/other" && echo '{"model": {}}' >"$work/other/config.json"
refuses "translating before the first validation" "continue it with train --resume" translate --run "$work/other"
touch "$work/other/tokenizer"
mkdir "$work/no-run" && touch "$work/no-run/notes.txt"
for command in translate evaluate; do
  refuses "$command of a folder that is not a run" "no-run: is not a run: it has no config.json" $command --run "$work/no-run"
done
refuses "fine-tuning a folder that is not a run" "no-run: is not a run" train --run "$work/new" --from "$work/no-run"
refuses "translating with a language model" "is a run of train_language_model" translate --run "$work/other"

refuses "a divergence in the step that would be saved" "after the update" train --run "$work/diverged2" "${tiny[@]}" \
  --learning-rate 1e30 --clip 0 --warmup 0 --schedule constant --checkpoint-every 1

# --- damaged files -----------------------------------------------------------------------------------------
intact="$work/whole"
refuses_damaged "a vocabulary that does not fit the weights" "embedding" 'field target_vocabulary 99' translate
refuses_damaged "a flipped byte in the weights" "checksum" \
  'printf "\377" | dd of=weights.safetensors bs=1 conv=notrunc status=none seek=$(($(stat -c %s weights.safetensors) - 30))' \
  translate
refuses_damaged "a vocabulary of fewer words" "target.vocabulary" 'sed -i 2d target.vocabulary' translate
for file in config.json source.vocabulary weights.safetensors; do
  refuses_damaged "$file of a terabyte" "$file: .*bytes" "claims_a_terabyte $file" translate
done
claims_a_terabyte "$work/holes"
refuses "pairs of a terabyte without a character" "holes:1: a NUL" train --run "$work/new" --pairs "$work/holes"
refuses "a translation of a terabyte without a character" "holes:1: a NUL" train --run "$work/new" --source "$work/pairs.en" \
  --target "$work/holes"
refuses "a model of a terabyte" "holes: .*bytes are too many" train --run "$work/new" --pairs "$work/pairs.tsv" \
  --source-model "$work/holes" --target-model "$work/holes"
refuses_damaged "a fingerprint that is text" "config.json: was not written by this program" 'field source \"none\"' translate
refuses_damaged "a damaged vocabulary" "source.vocabulary" 'truncate -s 20 source.vocabulary' translate
printf 'ok\nbad \xff\n' | "$program" translate --run "$work/whole" >"$work/out" 2>"$work/err"
check "invalid UTF-8 on standard input names the line" grep -q 'input:2: invalid UTF-8 at byte 5' "$work/err"
printf 'ok\na\0b\0\n' | "$program" translate --run "$work/whole" >"$work/out" 2>"$work/err"
check "and so does UTF-16" grep -q 'input:2: a NUL at byte 2' "$work/err"
words=$(printf 'the cat sleeps . %.0s' $(seq 200))
printf 'the cat sleeps .\n%s\nbad \xff\nthe cat sleeps .\n' "$words" | "$program" translate --run "$work/whole" >"$work/out" 2>"$work/err"
check "a line that is not text ends translate with 2" test $? = 2
check "after the others have been translated" test "$(wc -l <"$work/out")$(sed -n '1p;4p' "$work/out" | uniq | wc -l)" = 41
check "and one that is too long is cut with a note" grep -q 'note: standard input:2: has 801 tokens, and only the first 127 are' "$work/err"
"$program" translate --run "$work/whole" $'bad \xff' 'the cat sleeps .' >"$work/out" 2>"$work/err"
check "a given sentence that is not text has an empty translation" test "$?$(wc -l <"$work/out")$(head -c 1 "$work/out" | wc -l)" = 221

ends_here
