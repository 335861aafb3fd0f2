#!/usr/bin/env bash
# Attention under random masks, by every way there is to compute it, against plain loops in double: far more problems than a
# test run has time for. A problem that comes out wrong is shrunk and printed as a line to set before this command, which then
# runs it alone.
# Usage: tests/random_attention.sh [CASES [SEED [FOLDER]]]
#   CASES   by each way, 1000 unless given; on the emulated GPU, which is slower, a third of them
#   SEED    the first problem's, 1 unless given; others count on from it
#   FOLDER  what tests/run.sh has built, build/release unless given
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cases=${1:-1000} folder=${3:-build/release}/tests status=0
export TAPEFORMER_ATTENTION_SEED=${2:-1} OMP_WAIT_POLICY=passive
# run PROGRAM CASES NAMES [VARIABLE=VALUE...]
run() {
  env TAPEFORMER_ATTENTION_CASES="$2" "${@:4}" "$folder/$1" --test-case="$3" --minimal=true || status=1
}
run tapeformer_tests "$cases" 'random attention*'
run tapeformer_tests_emulated $(((cases + 2) / 3)) 'random attention on a GPU*,random attention: decoding*' \
  TAPEFORMER_TEST_DEVICE=cuda TAPEFORMER_CUDA_MEMORY=managed
exit $status
