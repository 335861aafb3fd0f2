#!/usr/bin/env bash
# Builds the library, the programs and the tests, runs the tests and the structure check.
# Usage: tests/run.sh [--asan] [--slow]
#   --asan  with the address and undefined-behaviour sanitizers (build/asan instead of build/release)
#   --slow  the slow tests too
# Warnings are errors where CI is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release
selection=(-L cpu -LE slow)
for option in "$@"; do
  case $option in
    --asan) preset=asan ;;
    --slow) selection=(-L 'cpu|slow') ;;
    *)
      echo "tests/run.sh: unknown option $option; try --asan, --slow" >&2
      exit 2
      ;;
  esac
done

examples/setup.sh clang-format-14
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache
cmake --preset "$preset" --log-level=WARNING ${CI:+-DTAPEFORMER_WERROR=ON} >/dev/null
cmake --build --preset "$preset" -j "$(nproc)"

status=0
UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir "build/$preset" "${selection[@]}" --output-on-failure \
  --no-tests=error || status=1
tests/structure.sh || status=1
exit $status
