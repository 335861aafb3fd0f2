#!/usr/bin/env bash
# Builds what changed since a commit and runs the tests that it affects, on the CPU.
# Usage: tests/changed.sh [--list] [COMMIT=HEAD]
#   --list  only names the tests
# Includes are known from the last build, in which each source is compiled by itself (build/single). A changed source affects all users of its header, in turn.
# It does not follow scripts, CMake files and golden values, but names those that changed: run tests/run.sh for them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
list=false
[ "${1-}" = --list ] && list=true && shift
commit=${1-HEAD}

mapfile -t changed < <(git diff --name-only "$commit" -- && git ls-files --others --exclude-standard)
wait $!  # for the exit status of git
[ ${#changed[@]} -gt 0 ] || { echo "tests/changed.sh: nothing has changed since $commit"; exit 0; }
unseen=$(printf '%s\n' "${changed[@]}" | grep -vE '\.(h|cpp|cu|md)$' | tr '\n' ' ') || true
[ -z "$unseen" ] || echo "tests/changed.sh: only tests/run.sh tests what these change: $unseen" >&2

if ! $list || [ ! -e build/single/.ninja_deps ]; then
  cmake --preset release -B build/single -DTAPEFORMER_UNITY=OFF --log-level=WARNING >/dev/null
  cmake --build build/single -j "$(nproc)" --target tapeformer_tests minimal train_translation train_language_model \
    gradcheck_attention
fi

# The names of tests, from the list of each object's dependencies; an object's source comes first in it.
names=$(ninja -C build/single -t deps | awk -v changed="${changed[*]}" -v root="$PWD/" '
  function plain(path) {
    sub(/^.*\/build\/single\/include\/tapeformer\//, "", path)
    if (index(path, root) == 1) path = substr(path, length(root) + 1)
    return path
  }
  function affect(file) { if (!(file in affected)) affected[file] = again = 1 }
  # The headers that declare a source: of its name, or of the beginning of its name, here or in the folder above.
  function affect_headers(source,   stem, folder) {
    stem = source
    if (!sub(/\.(cpp|cu)$/, "", stem)) return
    folder = stem
    sub(/[^\/]*$/, "", folder)
    sub(/.*\//, "", stem)
    for (; stem != ""; sub(/_?[^_]*$/, "", stem)) {
      if ((folder stem ".h") in headers) return affect(folder stem ".h")
      sub(/[^\/]*\/$/, "", folder)
      if ((folder stem ".h") in headers) return affect(folder stem ".h")
      folder = source
      sub(/[^\/]*$/, "", folder)
    }
  }
  /^[^ ].*: #deps/ { object = $1; sub(/:$/, "", object); is_first = 1; next }
  NF == 1 {
    file = plain($1)
    if (file ~ /^\// || file ~ /^usr/) next  # of the system
    if (file ~ /\.h$/) headers[file] = 1
    if (is_first) source_of[object] = file
    is_first = 0
    uses[object] = uses[object] " " file
  }
  END {
    count = split(changed, files, " ")
    for (i = 1; i <= count; ++i) affect(files[i])
    while (again) {
      again = 0
      for (file in affected) affect_headers(file)
      for (object in uses) {
        if (source_of[object] in affected) continue
        count = split(uses[object], files, " ")
        for (i = 1; i <= count; ++i) if (files[i] in affected) { affect(source_of[object]); break }
      }
    }
    for (file in affected) {
      if (file ~ /^tests\/.*\/test_[a-z0-9_]+\.cpp$/) {
        sub(/^tests\//, "", file); sub(/test_/, "", file); sub(/\.cpp$/, "", file)
        print file
      } else if (file ~ /^examples\/[a-z_]+\.cpp$/) {
        sub(/\.cpp$/, "", file)
        print file
      }
    }
  }' | sort -u)
[ -n "$names" ] || { echo "tests/changed.sh: no test is affected"; exit 0; }
if $list; then
  echo "$names"
else
  ctest --test-dir build/single -j "$(($(nproc) + 1))" -L '^(cpu|everything)$' -R "^($(echo $names | tr ' ' '|'))\$" --output-on-failure --no-tests=error
fi
