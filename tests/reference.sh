#!/usr/bin/env bash
# Writes the API reference with Doxygen, and fails if a public name has no comment or a comment names what is not there.
# Usage: tests/reference.sh [FOLDER]    (build/reference; its html/index.html is the first page)
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
if ! command -v doxygen >/dev/null; then
  echo "reference: Doxygen is not installed; nothing is written or checked"
  exit 77
fi
folder=${1:-build/reference}
mkdir -p "$folder" || exit 1
planted=$(mktemp -d)
trap 'rm -rf "$planted"' EXIT
configured() {  # configured SETTING...: Doxygen with the project's configuration and these settings
  { cat examples/packaging/Doxyfile && printf '%s\n' "$@"; } | doxygen -
}
configured "OUTPUT_DIRECTORY = $folder" || exit 1

# Would it notice?
printf '/// Planted.\nnamespace tapeformer {\n\nint undocumented();\n}\n' >"$planted/planted.h"
if configured "OUTPUT_DIRECTORY = $planted" "INPUT = $planted/planted.h" USE_MDFILE_AS_MAINPAGE= 2>"$planted/err"; then
  echo "reference: a name without a comment was not noticed"
  exit 1
fi
grep -q 'undocumented.* is not documented' "$planted/err" || { cat "$planted/err"; exit 1; }
echo "reference: every public name is documented; $folder/html/index.html"
