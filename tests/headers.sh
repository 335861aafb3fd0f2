#!/usr/bin/env bash
# Compiles each header that is installed alone, from the installed tree: none may rely on what is included before it, or on a
# header that stays behind.
# Usage: headers.sh BUILD_FOLDER
set -u
build=$(realpath "$1") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --component development --prefix "$work" >/dev/null || exit 1
export include=$work/include
export CXX=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
compiles() {
  echo "#include <$1>" | $CXX -std=c++17 -Wall -Wextra -Werror -I "$include" -fsyntax-only -x c++ - ||
    echo "$1 does not compile alone" >&2
}
export -f compiles
cd "$include" || exit 1
find tapeformer -name '*.h' | sort >"$work/headers"
xargs -P "$(nproc)" -I {} bash -c 'compiles {}' <"$work/headers" 2>"$work/err"
cat "$work/err"
echo "$(wc -l <"$work/headers") headers, $(grep -c 'does not compile alone$' "$work/err") do not compile alone"
test "$(wc -l <"$work/headers")" -gt 100 && test ! -s "$work/err"
