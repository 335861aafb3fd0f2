#!/usr/bin/env bash
# Draws the pictures of the guide and of nn/attention/README.md again. Usage: pictures.sh PROGRAMS_FOLDER
set -eu
programs=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/pictures"
for picture in *.svg; do
  "$programs/guide/${picture%.svg}" "$picture" >/dev/null
done
"$programs/attention_pictures" ../../../nn/attention/pictures
