#!/usr/bin/env bash
# From a fresh clone to a trained English -> French translator: installs what is missing, builds, trains on the
# built-in corpus, measures the held-out sentences and translates five.
# Usage: examples/quickstart.sh [RUN_FOLDER] [further options of `train_translation train`]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=runs/quickstart
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
  run=$1
  shift
fi

examples/setup.sh
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache
cmake --preset release --log-level=WARNING >/dev/null
cmake --build --preset release -j "$(nproc)" --target train_translation

program=build/release/examples/train_translation
"$program" train --run "$run" "$@"
"$program" evaluate --run "$run"
"$program" translate --run "$run" <<'SENTENCES'
the cat sees the black dog .
my sister does not eat the big apples .
do you know three young doctors ?
we love the new house .
they are reading an old book .
SENTENCES
