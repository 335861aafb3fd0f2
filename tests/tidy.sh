#!/usr/bin/env bash
# Looks through the library's and the programs' sources with clang-tidy 14, by the checks in .clang-tidy.
# Usage: tests/tidy.sh [FILE...]   without files: all of them, some minutes on many cores, half an hour on two
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for tool in clang-tidy-14 clang++-14; do
  command -v $tool >/dev/null && continue
  echo "tests/tidy.sh: $tool was not found; install clang-tidy-14, clang-14 and libomp-14-dev" >&2
  exit 2
done
# Its own build folder: clang-tidy needs the commands of clang++, for each source by itself.
cmake -S . -B build/tidy -G Ninja --log-level=WARNING -DCMAKE_CXX_COMPILER=clang++-14 -DTAPEFORMER_UNITY=OFF \
  -DTAPEFORMER_TESTS=OFF >/dev/null
if [ $# = 0 ]; then
  mapfile -t files < <(git ls-files 'autograd/*.cpp' 'nn/*.cpp' 'optim/*.cpp' 'data/*.cpp' 'examples/*.cpp' |
    grep -Fxf <(sed -n "s|^ *\"file\": \"$PWD/\(.*\)\",\?$|\1|p" build/tidy/compile_commands.json))
  set -- "${files[@]}"
fi
echo "clang-tidy: $# files"
printf '%s\0' "$@" |
  xargs -0 -P "$(nproc)" -n 1 clang-tidy-14 -p build/tidy --quiet --warnings-as-errors='*' --extra-arg=-Wno-unknown-warning-option \
    2> >(grep -vE '^[0-9]+ warnings? (generated|treated)|^Suppressed|^Use -header' >&2)
echo "clang-tidy: nothing found"
