#!/usr/bin/env bash
# From a fresh clone to a trained English -> French translator: installs what is missing, builds, trains on the
# built-in corpus, measures the held-out sentences and translates five.
# Usage: examples/quickstart.sh [RUN_FOLDER] [further options of `train_translation train`]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run=runs/quickstart
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
  run=$(cd "$OLDPWD" && realpath -m -- "$1")
  shift
fi

examples/setup.sh
echo "Compiling the library and train_translation (a minute or two on two cores)"
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache
cmake --preset release --log-level=WARNING >/dev/null
cmake --build --preset release -j "$(nproc)" --target train_translation

program=build/release/examples/train_translation
if [ -e "$run/checkpoint.safetensors" ]; then
  [ $# -eq 0 ] || echo "$run goes on with its own options; not used: $*" >&2
  "$program" train --run "$run" --resume  # a second call goes on, or finds the run finished
else
  "$program" train --run "$run" --preset quickstart "$@"
fi
"$program" evaluate --run "$run"

sentences='Why does she clean his green birds?
They will never return to a beautiful park soon.
He did not give us any old books yesterday.
This new tree that they drew was very blue.
She cleans her watch because it is very old.'
printf '\nFive translations (try your own: %s translate --run %s):\n' "$program" "$run"
"$program" translate --run "$run" <<<"$sentences" | sed 's/^/    /' | paste -d '\n' <(echo "$sentences") -
