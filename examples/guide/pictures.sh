#!/usr/bin/env bash
# Draws the guide's pictures again. Usage: pictures.sh PROGRAMS_FOLDER
set -eu
programs=$(realpath "$1")/guide
cd "$(dirname "${BASH_SOURCE[0]}")/pictures"
for picture in *.svg; do
  "$programs/${picture%.svg}" "$picture" >/dev/null
done
