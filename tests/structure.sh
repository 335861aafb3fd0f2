#!/usr/bin/env bash
# Checks what a compiler does not: who may include whom, sizes of folders, files and lines, format, leftovers, and that each
# source has its test. Prints file:line: rule for each violation and fails if there is one.
# Usage: tests/structure.sh [SOURCE_FOLDER]
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
export LC_ALL=C.UTF-8  # grep counts characters, not bytes

kMaxLines=400
kMaxColumns=110
kMaxFiles=45  # of a folder, about 20 pairs

mapfile -t sources < <(find autograd nn optim data examples tests \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) | sort)

violations() {
  include_violations
  size_violations
  missing_tests
  missing_algorithm
  leftovers
  emulated_libraries
  habits
}

# The folder autograd from the bottom to the top: a file includes what is on its own line or above it here.
autograd_levels=(
  'error|format|bfloat16'
  'system'
  'dtype|shape'
  'config'
  'device|profile'
  'cuda'
  'kernels'
  'storage|storage_limit|storage_watch|draws|pooled_function'
  'tensor|xtensor|async_readback|random'
  'dispatch|parameter'
  'tape'
  'communication|cuda_graph_cache|profile_part'
  'ops'
  'gradcheck'
)

# The first line whose pattern matches the including file decides: what it includes of ours must match `allowed`,
# and must not match `forbidden`.
include_violations() {
  grep -nE '^[[:space:]]*#[[:space:]]*include' "${sources[@]}" /dev/null | awk -F: -v order="${autograd_levels[*]}" '
    function rule(pattern, allow, forbid) { from[++rules] = pattern; allowed[rules] = allow; forbidden[rules] = forbid }
    BEGIN {
      levels = split(order, of_level, " ")
      inside = "^autograd/cuda/[^g]"  # the CUDA runtime, seen from outside through device.h and cuda/graph.h
      rule("^autograd/", "^autograd/", "")
      rule("^nn/", "^(autograd|nn)/", inside)
      rule("^optim/", "^(autograd|optim)/", inside)
      rule("^data/", "^(autograd|data)/", inside)
      rule("^examples/", "^((autograd|nn|optim|data|examples)/|tapeformer\\.h$)", inside)
      rule("^tests/(autograd|emulator|bench)/", "", "")
      rule("^tests/", "", inside)
    }
    # The position in autograd_levels; of autograd alone.
    function level(path, i) {
      for (i = 1; i <= levels; ++i) if (path ~ "^autograd/(" of_level[i] ")([./]|$)") return i
      return 0
    }
    {
      file = $1; place = $1 ":" $2 ": "; target = $0
      if (target ~ /include[ \t]*"/) { print place "includes are written <tapeformer/...>"; next }
      sub(/^[^<]*</, "", target); sub(/>.*/, "", target)
      if (target ~ /^(xtensor|xtensor-blas|xtl)\// && file !~ /^tests\// && file !~ /\.cpp$/ && file != "autograd/xtensor.h")
        print place "xtensor is included only by autograd/xtensor.h, sources (.cpp) and tests"
      if (target ~ /^CLI\// && file != "examples/shared/command_line.cpp")
        print place "CLI11 is included only by examples/shared/command_line.cpp: it takes seconds to compile"
      if (target !~ /^tapeformer\//) next
      sub(/^tapeformer\//, "", target)
      for (i = 1; i <= rules; ++i) {
        if (file !~ from[i]) continue
        if (target !~ allowed[i] || (forbidden[i] != "" && target ~ forbidden[i]))
          print place "may not include " target
        break
      }
      if (target ~ /^autograd\// && !level(target)) print place target " has no place in autograd_levels"
      if (file ~ /^autograd\// && level(target) > level(file)) print place "includes upward: " target
    }'
}

size_violations() {
  dirname "${sources[@]}" | sort | uniq -c | awk -v most=$kMaxFiles '$1 > most { print $2 ":1: more than " most " files (" $1 ")" }'
  wc -l "${sources[@]}" | awk -v most=$kMaxLines '$2 != "total" && $1 > most { print $2 ":" most + 1 ": longer than " most " lines (" $1 ")" }'
  grep -nE "^.{$((kMaxColumns + 1)),}" "${sources[@]}" /dev/null | awk -F: -v most=$kMaxColumns '{ print $1 ":" $2 ": wider than " most " columns" }'
}

missing_tests() {
  local source test
  for source in "${sources[@]}"; do
    case $source in
      autograd/kernels/* | nn/formats/*families/* | data/tokenizers/json/* | tests/* | examples/*) continue ;;
      *.cpp) ;;
      *) continue ;;
    esac
    test=tests/$(dirname "$source")/test_$(basename "$source")
    [ -e "$test" ] || echo "$source:1: has no test ($test)"
  done
}

# Other headers bring <algorithm> along in some versions of the standard library, and not in the next.
missing_algorithm() {
  local calls='std::(sort|stable_sort|find|find_if|count|count_if|any_of|all_of|none_of|(min|max|minmax)_element'
  calls+='|equal|fill|fill_n|copy|copy_n|copy_if|reverse|transform|replace|(lower|upper)_bound|remove_if|is_sorted'
  calls+='|unique|mismatch|search|rotate|clamp|min|max)\('
  grep -L '#include <algorithm>' "${sources[@]}" | xargs -r grep -nE "^[^\"/]*$calls" /dev/null |
    awk -F: '!seen[$1]++ { print $1 ":" $2 ": uses an algorithm and does not include <algorithm>" }' || true
}

leftovers() {
  # Each pattern is written so that it does not match itself.
  grep -rnIsE -e '\b(TO[D]O|FIX[M]E|XX[X])\b' -e '\.\./share[d]' \
    -e '(^|[^[:alnum:]_.:/}-])/(work|home|root|Users|opt|mnt|srv|tmp|workspace)/' \
    autograd nn optim data examples tests .ci CMakeLists.txt CMakePresets.json README.md \
    --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' --include='*.py' --include='*.sh' \
    --include='*.md' --include='*.json' --include='CMakeLists.txt' --include='run' |
    awk -F: '{ print $1 ":" $2 ": leftover: " substr($0, length($1 $2) + 3) }' || true
}

# Tests that need an emulated library do not compile with CUDA, and are left out there by name in tests/CMakeLists.txt.
emulated_libraries() {
  grep -rlE '<libraries/emulated_|/nccl_case\.h>|<cuda_emulator' tests --include=*.cpp --include=*.h |
    grep -vE '^tests/emulator/|/(nccl_case\.h|test_(nccl(_engine|_training)?|cuda_cublaslt)\.cpp)$' |
    sed 's/$/:1: needs the emulator, and compiles with CUDA too: see the list in tests\/CMakeLists.txt/' || true
}
# Habits of English that make readers stumble: what a line must not match, and what to write instead. Those of the second
# list hold for comments of the product alone; a file's quoted text is the program's.
english=(
  '\banew\b(?!\() => again'
  '\btrainings\b => runs'
  '(?<![Tt]here )(?<!// )\b(is|are) no (?!longer|more|less|fewer|better|worse|farther|nearer|simpler|wider|such|one) => "is not a ..."'
  '[0-9a-z] (tokens?|bytes|ms|seconds|operations|values|FLOPs?) a (token|step|layer|row)\b => "per token", "per step"'
  '^ *///?<? Of (the|a|an|its|each|every|all|this)\b => a noun phrase, as in "Configuration of the norms."'
  '(?<!"|: )\bWho(ever)? [a-z]+s\b => the person or the thing by name'
)
english_in_product=(
  '^ *///?<? (The same( for| of|\.)|That |Those (that|of) ) => a noun phrase, or "As f(), ..."'
  "//.*\b([Aa]|one|new) training(?= that| as|,|\\.|:|'s) => run"
  '^[^"]*//[^"]*[.:] What\b => the thing by name'
  '^[^"]*//[^"]*(?<!`)\bbeside\b => "next to", "besides"'
  '^[^"]*//[^"]*\b(whoever|stands|stood) => the person by name; "is"'
  '^[^"]*//[^"]*\b(nats|bits|[Bb]ytes|perplexity|gigabytes|one [a-z]+) a (token|word|byte|second|node|rank|GPU|run)\b => "per ..."'
)
# habits_in FOLDERS -- PATTERNS
habits_in() {
  local folders=() row
  while [ "$1" != -- ]; do folders+=("$1") && shift; done
  shift
  for row in "$@"; do
    git ls-files -- "${folders[@]}" ':!tests/golden' ':!*RESULTS.md' ':!*.tsv' ':!*.svg' ':!tests/structure.sh' |
      xargs grep -nIsP "${row% => *}" |
      awk -F: -v instead="${row##* => }" '{ print $1 ":" $2 ": write " instead ": " substr($0, length($1 $2) + 3) }' || true
  done
}
habits() {
  git rev-parse --git-dir &>/dev/null || return 0
  habits_in autograd nn optim data examples tests README.md .github -- "${english[@]}"
  habits_in {autograd,nn,optim,data,examples}/'*.'{h,cpp,cu} -- "${english_in_product[@]}"
}

status=0
found=$(violations 2>&1)  # a failure of a check is a violation too
if [ -n "$found" ]; then
  echo "$found"
  status=1
fi

formatter=$(command -v clang-format-14 || command -v clang-format || true)
if [ -n "$formatter" ] && "$formatter" --version | grep -q 'version 14\.'; then
  printf '%s\0' "${sources[@]}" | xargs -0 -P "$(nproc)" -n 16 "$formatter" --dry-run -Werror || status=1
else
  echo "structure: clang-format 14 is not installed; the format is not checked"
fi
git rev-parse --git-dir &>/dev/null || echo "structure: without git the wording is not checked"

[ $status -eq 0 ] && echo "structure: ${#sources[@]} files keep the rules"
exit $status
