#!/usr/bin/env bash
# The first program that a reader opens learns and generates.
# Usage: minimal.sh PROGRAM
set -u
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
. "$source/tests/examples/program_test.sh" "$1"

check "it trains on the built-in text" sh -c "'$program' >'$work/out' 2>'$work/err'"
check "its loss falls well below what letters' frequencies give" awk '
  /^step/ { loss[++n] = $4 } END { exit !(n == 6 && loss[6] < loss[1] - 0.5 && loss[6] < 1.7) }' "$work/out"
check "it writes 400 characters" test "$(sed '/^step/d' "$work/out" | wc -m)" -ge 400
printf 'the cat sat on the mat. %.0s' $(seq 20) >"$work/text"
prints "it learns a text of one's own" 'the cat sat on the mat. the cat sat' "$work/text" 200
refuses "a file that is not there" "cannot be opened" "$work/none"
printf 'short' >"$work/text"
refuses "a text that is too short" "too short" "$work/text"
refuses "steps that are not a number" "usage" "$work/text" many

ends_here
