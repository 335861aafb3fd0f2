#!/usr/bin/env bash
# The guide shows its programs and their output: each block marked cpp, of any document, occurs in a source; each block
# marked text, of a page with a program of its name, is a part of its output, numbers to one unit of their last digit.
# Pictures are those that the programs draw, there and in nn/attention, weights to a hundredth, and links between documents
# have targets. The README counts the lines of its reading path right.
# Usage: guide.sh GUIDE_PROGRAMS_FOLDER TRAIN_TRANSLATION
set -u
programs=$(realpath "$1") train=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
. tests/examples/program_test.sh "$programs"

# blocks DOCUMENT KIND: each block into a file of its own, in $work/blocks
blocks() {
  rm -rf "$work/blocks" && mkdir "$work/blocks"
  awk -v kind="\`\`\`$2" -v folder="$work/blocks" '
    /^```/ && inside { inside = 0; close(file); next }
    /^```/ { inside = 1; file = $0 == kind ? sprintf("%s/%02d", folder, ++count) : "/dev/null"; next }
    inside { print > file }' "$1"
}

# is_part BLOCK FILE [MOST]: the file contains the block's lines, one after another, whatever their indentation; numbers
# may differ by MOST or, if it is "digit", by one unit of the last digit that is printed.
is_part() {
  awk -v most="${3-}" '
    function unit(word, parts) {
      if (most != "digit") return most
      split(word, parts, ".")
      return length(parts[2]) ? 10 ^ -length(parts[2]) : 0
    }
    function same(a, b, x, y, n, i) {
      if (a == b) return 1
      if (most == "") return 0
      n = split(a, x, /[ \t"<>:]+/)
      if (n != split(b, y, /[ \t"<>:]+/)) return 0
      for (i = 1; i <= n; ++i) {
        if (x[i] == y[i]) continue
        if (x[i] !~ /^-?[0-9]+\.?[0-9]*(e-?[0-9]+)?$/ || y[i] !~ /^-?[0-9]+\.?[0-9]*(e-?[0-9]+)?$/) return 0
        if (x[i] - y[i] > 1.001 * unit(x[i]) || y[i] - x[i] > 1.001 * unit(x[i])) return 0
      }
      return 1
    }
    { sub(/^[ \t]+/, ""); sub(/[ \t]+$/, "") }
    NR == FNR { block[++lines] = $0; next }
    { file[++length_] = $0 }
    END {
      for (start = 0; start + lines <= length_; ++start) {
        for (i = 1; i <= lines && same(block[i], file[start + i]); ++i) {}
        if (i > lines) exit 0
      }
      exit 1
    }' "$1" "$2"
}
in_a_source() {  # in_a_source BLOCK: first where it may be, for speed
  local first source
  first=$(sed -n '1{s/^ *//;p}' "$1")
  for source in $(grep -rlF --include='*.cpp' --include='*.h' -e "$first" examples autograd nn optim data); do
    is_part "$1" "$source" && return 0
  done
  return 1
}
# links DOCUMENT: its links to files or headings that do not exist
links() {
  { sed '/^```/,/^```/d' "$1" | grep -oE '\]\([^): ]+' || true; } | cut -c 3- | while IFS='#' read -r file heading; do
    if [ -z "$file" ]; then file=$1; else file=$(dirname "$1")/$file; fi
    if [ ! -e "$file" ]; then echo "$1 links to $file"; fi
    if [ -n "$heading" ]; then
      sed -n '/^```/,/^```/d; s/^##* //p' "$file" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-' | grep -qx "$heading" || echo "$1 links to $file#$heading"
    fi
  done
}
# A picture without its colours. On another processor a training rounds differently, and its weights differ
# invisibly.
uncoloured() { sed -E 's/(fill|stop-color)="#[0-9a-f]*"//g' "$1"; }

# same_picture SHOWN DRAWN
same_picture() {
  uncoloured "$1" >"$work/shown"
  uncoloured "$2" >"$work/drawn"
  is_part "$work/shown" "$work/drawn" 0.01
}

for document in $(find . -name '*.md' -not -path './build/*' -not -path './runs/*' | sort); do
  blocks "$document" cpp
  for block in "$work"/blocks/*; do
    [ -e "$block" ] && check "$document: a block of C++ that begins $(head -n 1 "$block")" in_a_source "$block"
  done
  dead=$(links "$document")
  check "${dead:-links of $document}" test -z "$dead"
done

# The lines of the files in the README's reading path, to a twentieth.
while IFS='|' read -r _ _ files lines _; do
  folder= paths=()
  for file in $(grep -oE '`[^`]+`' <<<"$files" | tr -d '`'); do
    case $file in */*) folder=${file%/*} ;; *) file=$folder/$file ;; esac
    paths+=("$file")
  done
  counted=$(cat "${paths[@]}" | wc -l)
  check "the README says that$files has$lines lines; it has $counted" test $((20 * (counted > lines ? counted - lines : lines - counted))) -le "$counted"
done < <(grep -E '^\| [0-9]\. ' README.md)
check "the README has a reading path" test -n "${counted-}"

cd examples/guide || exit 1
mkdir "$work/folder"
for source in *.cpp; do
  page=${source%.cpp}
  check "$page has a page" test -e "$page.md"
  picture=$work/$page.svg
  case $page in
    using_a_model)
      "$train" train --run "$work/run" --encoder-layers 1 --decoder-layers 1 --width 8 --heads 2 --steps 1 --warmup 0 >"$work/out" 2>&1
      check "$page translates" sh -c "'$programs/$page' '$work/run' 'She sees the cat.' | grep -q ."
      continue
      ;;
    own_*) picture=$work/$page.safetensors ;;
  esac
  check "$page runs" sh -c "cd '$work/folder' && '$programs/$page' '$picture' >'$work/out' 2>&1"
  blocks "$page.md" text
  for block in "$work"/blocks/*; do
    check "$page prints what its page shows: $(head -n 1 "$block")" is_part "$block" "$work/out" digit
  done
  check "$page shows some of its output" test -e "$work/blocks/01"
  if [ -e "pictures/$page.svg" ] || [ -e "$work/$page.svg" ]; then
    check "$page draws the picture of its page" same_picture "pictures/$page.svg" "$work/$page.svg"
    check "$page's page shows its picture" grep -q "(pictures/$page.svg)" "$page.md"
  fi
done

cd ../../nn/attention || exit 1
mkdir "$work/attention"
check "the pictures of nn/attention can be drawn" "$(dirname "$train")/attention_pictures" "$work/attention" >"$work/out"
check "they are all there, and no others" diff <(ls pictures) <(ls "$work/attention")
for picture in pictures/*.svg; do
  check "$picture is what is drawn" same_picture "$picture" "$work/attention/${picture#pictures/}"
  check "$picture is in the table" grep -q "\"$picture\"" README.md
  check "$picture is small" test "$(wc -c <"$picture")" -lt 15000
done

ends_here
