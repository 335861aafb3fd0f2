#!/usr/bin/env bash
# Writes a token file of at most 65,536 different tokens in the form of llm.c's .bin files.
# Usage: as_llm_c.sh FILE.tokens >FILE.bin
set -eu
count=$((($(wc -c <"$1") - 64) / 2))
number() { printf '\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24)); }
printf "$(number 20240520)$(number 1)$(number $count)"
head -c 1012 /dev/zero
tail -c +65 "$1"
