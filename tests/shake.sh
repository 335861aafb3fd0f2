#!/usr/bin/env bash
# Runs the tests on other draws and for several instruction sets, and says how near each bounded check came to its bound. A
# check that fails for one seed of fifty, or nearly, would fail some day on somebody's processor: its bound must follow from
# the arithmetic, or its case is ill-posed.
# Usage: tests/shake.sh SEEDS [--from SEED] [--set NAME]... [-R REGEX] [--jobs N] [--keep FILE]
#   SEEDS        how many, from 1 on or from --from on
#   --set NAME   of the instruction sets v2 (SSE, vectors as long as 64-bit Arm's), v3 (AVX2), v4 (AVX-512) and native only
#                these; all that this machine has unless given.
#                Each has its build in build/shake-NAME
#   -R REGEX     only the test sources whose path matches
#   --jobs N     N tests side by side; as many as there are cores unless given
#   --keep FILE  keeps there all margins: instruction set, seed, error over bound, place, case
# Prints the checks that came nearest, and how near with each set; exit code 1 if a check came within a factor of 2, or failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C

seeds=${1:?tests/shake.sh needs the number of seeds} from=1 sets=() regex=. jobs=$(nproc) keep=
shift
while [ $# -gt 0 ]; do
  case $1 in
    --from) from=$2 ;;
    --set) sets+=("$2") ;;
    -R) regex=$2 ;;
    --jobs) jobs=$2 ;;
    --keep) keep=$(realpath "$2") ;;
    *)
      echo "tests/shake.sh: unknown option $1; try --from, --set, -R, --jobs, --keep" >&2
      exit 2
      ;;
  esac
  shift 2
done
if [ ${#sets[@]} = 0 ]; then
  sets=(v2 v3)
  ! grep -qw avx512bw /proc/cpuinfo || sets+=(v4)
  sets+=(native)
fi

# What draws or has bounds. Left out: what depends on texts and files alone, and what takes minutes for other reasons.
mapfile -t sources < <(find tests -name 'test_*.cpp' |
  grep -vE '^tests/(bench|emulator|fuzz|memory|examples/(report|shared|translation))/|/test_(cuda|nccl|causality|options)' |
  xargs grep -lE 'test_seed|CHECK_BELOW|check_gradients|random_(values|tokens|normal|uniform)|_case\.h|attention_(search|problem)\.h' |
  grep -E -- "$regex" | sort)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache
# one_test SOURCE: a line for a failure, and the first that it says of it.
one_test() {
  local out=$work/${1//\//_}
  "$program" --source-file="*/$1" --test-case-exclude='slow:*' --no-intro >"$out" 2>&1 ||
    printf 'FAILED %s seed %s %s: %s\n' "$set" "$TAPEFORMER_TEST_SEED" "$1" "$(grep -m 1 -A 4 -E 'ERROR|terminate' "$out" | tr -s ' \n' ' ')"
}
export -f one_test
export work set program TAPEFORMER_TEST_SEED
# Three elements notice a wrong gradient too, and here roundings are looked for.
export TAPEFORMER_GRADCHECK_ELEMENTS=3 OMP_NUM_THREADS=1
for set in "${sets[@]}"; do
  march=x86-64-$set isa=AVX512_CORE  # oneDNN asks the processor, whatever this is compiled for
  [ "$set" != v2 ] || isa=SSE41
  [ "$set" != v3 ] || isa=AVX2
  [ "$set" != native ] || { march=native isa=ALL; }
  cmake -S . -B "build/shake-$set" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DTAPEFORMER_MARCH="$march" >/dev/null
  cmake --build "build/shake-$set" -j "$jobs" --target tapeformer_tests >"$work/build" || { tail -n 40 "$work/build" && exit 1; }
  program=build/shake-$set/tests/tapeformer_tests
  left_out=nothing
  for ((seed = from; seed < from + seeds; ++seed)); do
    TAPEFORMER_TEST_SEED=$seed TAPEFORMER_TEST_MARGINS=$work/margins DNNL_MAX_CPU_ISA=$isa \
      xargs -P "$jobs" -n 1 bash -c "one_test \"\$1\"" one_test < <(printf '%s\n' "${sources[@]}" | grep -v $left_out) | tee -a "$work/failures"
    sed "s/^/$set /" "$work/margins" >>"$work/all"
    rm "$work/margins"
    left_out=test_single_precision  # the slowest, whose draws are stored next to PyTorch's errors
  done
done
[ -z "$keep" ] || cp "$work/all" "$keep"

# The largest error over bound of each place, and what it was found with.
awk -v names="${sets[*]}" '
  { ratio = $3 + 0; place = $4; case_ = substr($0, index($0, " " place " ") + length(place) + 2) }
  !(place in worst) || ratio > worst[place] { worst[place] = ratio; seed[place] = $2; of[place] = case_ }
  ratio > by[place, $1] { by[place, $1] = ratio }
  END {
    sets = split(names, set, " ")
    for (place in worst) {
      printf "%.4f %-6d", worst[place], seed[place]
      for (i = 1; i <= sets; ++i) printf " %8.4f", by[place, set[i]]
      printf "  %s: %s\n", place, of[place]
    }
  }' "$work/all" | sort -rn >"$work/table"
printf 'seed  '
printf ' %8s' "${sets[@]}"
printf '  error over bound\n'
awk '$1 > 0.5 || NR <= 20' "$work/table" | cut -d ' ' -f 2-
near=$(awk '$1 > 0.5 && $1 <= 1' "$work/table" | wc -l) over=$(awk '$1 > 1' "$work/table" | wc -l)
echo "$(wc -l <"$work/table") bounded checks, $seeds seeds: $near within a factor of 2 of the bound, $over beyond it; $(wc -l <"$work/failures") failures"
[ "$near" = 0 ] && [ "$over" = 0 ] && [ ! -s "$work/failures" ]
