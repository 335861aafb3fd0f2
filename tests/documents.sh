#!/usr/bin/env bash
# Runs the commands in the documents. Blocks marked ```sh are run in order, those of one document in one shell and in an
# empty folder of its own, where stand-ins for the reader's files lie; a training has one step, and a gradient check
# takes one element of each input. A block of commands without a mark must be named below, with the test that runs it.
# Usage: documents.sh PROGRAMS_FOLDER [DOCUMENT...]
set -u
programs=$(realpath "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
source=$PWD
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
. tests/examples/program_test.sh "$programs"

# Blocks that are not run here: the document, and the beginning of a line of the block.
elsewhere='
README.md examples/quickstart.sh
README.md cmake --preset
examples/guide/building.md cmake --preset
examples/hugging_face.md train_translation translate --run nllb
examples/hugging_face.md train_language_model train --run runs/tuned --from ModernBERT-base
examples/DISTRIBUTED.md examples/setup.sh
examples/DISTRIBUTED.md mpirun -n 2
examples/DISTRIBUTED.md mpirun --hostfile
examples/DISTRIBUTED.md srun
examples/DISTRIBUTED.md docker run
examples/packaging/README.md cmake --preset
examples/python/README.md pip install
examples/python/README.md cmake -S examples/python
tests/README.md TAPEFORMER_ATTENTION_CASE=
tests/bench/
'
# The two commands and the presets: continuous integration. Other families of translation models:
# tests/examples/translation_families.sh. DISTRIBUTED.md: tests/examples/ranks.sh, apart from clusters and
# containers, which are not available here. Packages: tests/packages.sh. The Python module: its own tests. tests/bench: measurements
# of hours, each listed with its machine.

mkdir "$work/bin" "$work/files" && cd "$work/files" || exit 1
for program in train_language_model train_translation gradcheck_attention minimal; do
  {
    echo '#!/usr/bin/env bash'
    case $program in
      train_*) echo 'if [ "${1-}" = train ]; then
  case " $* " in
    *" --resume "*) set -- "$@" --max-minutes 1e-9 ;;
    *" gpt2-124m "*) set -- "$@" --layers 1 --width 64 --heads 2 --batch 1 --validation-batches 1 --steps 1 --warmup 0 --samples 1 ;;
    *) set -- "$@" --steps 1 --warmup 0 --samples 1 ;;
  esac
fi
[ "${1-}" != sweep ] || set -- "$@" --steps 1 --warmup 0 --samples 0' ;;&
      train_translation) echo 'case " $* " in
  " evaluate "*" --summary "*) ;;
  " translate "* | " evaluate "*) set -- "$@" --max-tokens 2 ;;
esac' ;;
      gradcheck_attention) echo 'case " $* " in
  *" --cost "* | *" --list "* | *" f32 "*) ;;
  *" --self-test "*) set -- "$@" --layer additive ;;
  *) set -- "$@" --elements 1 ;;
esac' ;;
      minimal) echo 'set -- "$1" 2' ;;
    esac
    echo "exec '$programs/$program' \"\$@\""
  } >"$work/bin/$program"
  chmod +x "$work/bin/$program"
done
export PATH=$work/bin:$PATH

# --- the reader's files ---------------------------------------------------------------------------------
awk 'BEGIN {
  split("cat dog bird child teacher", en); split("chat chien oiseau enfant professeur", fr)
  split("sees likes hears finds", verb); split("voit aime entend trouve", verbe)
  for (i = 1; i <= 5; ++i) for (j = 1; j <= 4; ++j) for (k = 1; k <= 5; ++k) for (n = 1; n <= 8; ++n)
    printf "The %s %s %d times the %s.\tLe %s %s %d fois le %s.\n", en[i], verb[j], n, en[k], fr[i], verbe[j], n, fr[k]
}' >fra-eng.tsv
cp fra-eng.tsv letters.tsv
for part in train valid test new; do
  cut -f 1 fra-eng.tsv >$part.en
  cut -f 2 fra-eng.tsv >$part.de
done
for i in $(seq 400); do printf 'It was day %d.\nROMEO: Who sees the cat?\nJULIET: The child likes birds, and THE TEACHER hears them.\n' $i; done >book.txt
cp book.txt tinyshakespeare.txt
for i in $(seq 400); do printf '{"prompt": "%d plus 1 is ", "answer": "%d"}\n' $i $((i + 1)); done >pairs.jsonl
as_llm_c() { "$source/tests/examples/as_llm_c.sh" "$1"; }
mkdir texts && cp book.txt texts
{
  train_language_model prepare --corpus texts/ --tokenizer bpe --vocabulary 300 --output own &&
    train_language_model train --run small --tokens own --preset gpt2-124m --context 256 &&
    train_language_model export --run small --output gpt2 && echo '{"eos_token_id": 0}' >gpt2/generation_config.json &&
    as_llm_c own/train.tokens >fineweb_train_1.bin && as_llm_c own/validation.tokens >fineweb_val_1.bin && rm -r own small
} >"$work/out" 2>"$work/err"
check "the stand-ins for the reader's files" test $? = 0

# --- every document -------------------------------------------------------------------------------------
cd "$source" || exit 1
[ $# -gt 0 ] || set -- $(git ls-files '*.md')
check "there are documents" test $# -gt 0
for document in "$@"; do
  # A command in a block without a mark must be listed, with the whole block, by any of its lines.
  awk -v document="$document" -v listed="$elsewhere" '
    BEGIN { count = split(listed, entries, "\n") }
    /^```/ && !inside { inside = 1; plain = $0 == "```"; known = 0; command = ""; next }
    /^```/ { if (plain && command != "" && !known) { print document ": " command; bad = 1 } inside = 0; next }
    inside && plain {
      for (i = 1; i <= count; ++i) {
        name = entries[i]; sub(/ .*/, "", name)
        start = substr(entries[i], length(name) + 2)
        if (name != "" && (name == document || name ~ /\/$/ && index(document, name) == 1) && index($0, start) == 1) known = 1
      }
      if (/^(\$ )?([A-Z_]+=[^ ]* )?(echo .*\| *)?(train_|gradcheck_|minimal|cmake|ctest|cpack|tests\/|examples\/|build\/|pip|mpirun|srun|docker|export PATH)/)
        command = $0
    }
    END { exit bad }' "$document" >"$work/err"
  check "commands that nothing runs: mark their block \`\`\`sh, or list it in tests/documents.sh" test $? = 0
  [ "$document" = examples/DISTRIBUTED.md ] && continue
  sed -n '/^```sh$/,/^```$/{/^```/!p}' "$document" >"$work/commands"
  [ -s "$work/commands" ] || continue
  rm -rf "$work/folder" && cp -r "$work/files" "$work/folder"
  (cd "$work/folder" && timeout 300 bash -e -u -o pipefail -x "$work/commands") </dev/null >"$work/out" 2>"$work/err"
  check "the commands of $document" test $? = 0
done

ends_here
