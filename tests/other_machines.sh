#!/usr/bin/env bash
# Runs the tests as they would run on other machines: with the instructions that oneDNN and OpenBLAS would find there,
# with other numbers of threads, in a locale with a decimal comma, and in a build for any AVX2 machine. No assertion may
# depend on any of it.
# Usage: tests/other_machines.sh [--built FOLDER] [--jobs N] [--logs FOLDER] [--quick] [--list] [MACHINE...]
#   MACHINE         only these; --list names all
#   --quick         one machine that differs in everything that costs nothing, and the tests that see most of it: minutes
#   --built FOLDER  what tests/run.sh has built; build/release unless given, and built if it is not there
#   --jobs N        N tests side by side; as many as there are cores unless given
#   --logs FOLDER   keeps there what each machine's tests printed
#   --list          the machines and how they are imitated, and nothing else
# Prints a line for each machine; exit code 1 if a test fails on any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# name: environment. What fails where all differs at once is narrowed down by hand.
machines='
laptop: DNNL_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell OMP_NUM_THREADS=1
old: DNNL_MAX_CPU_ISA=SSE41 OPENBLAS_CORETYPE=Prescott OMP_NUM_THREADS=3
desktop: DNNL_MAX_CPU_ISA=AVX OPENBLAS_CORETYPE=Zen OMP_NUM_THREADS=2 OMP_WAIT_POLICY=active LC_ALL=de_DE.UTF-8
server: DNNL_MAX_CPU_ISA=AVX512_CORE OPENBLAS_CORETYPE=SkylakeX OMP_NUM_THREADS=3 OMP_WAIT_POLICY=passive
portable: OMP_NUM_THREADS=2'
# With --quick: what multiplies matrices, or is cut among threads, and takes no minutes.
quick='^(emulated/)?autograd/ops/(linear|linear_cross_entropy|matmul)$|^(autograd/(kernels|ops)|nn|optim)/'

folder=build/release jobs=$(nproc) logs= selection=() chosen=()
while [ $# -gt 0 ]; do
  case $1 in
    --built) folder=${2:?--built needs a folder} && shift ;;
    --jobs) jobs=${2:?--jobs needs a number} && shift ;;
    --logs) logs=${2:?--logs needs a folder} && shift ;;
    --quick) chosen=(laptop) selection=(-R "$quick") ;;
    --list)
      echo "${machines#?}"
      exit
      ;;
    -*)
      echo "tests/other_machines.sh: unknown option $1; try --built FOLDER, --jobs N, --logs FOLDER, --quick, --list" >&2
      exit 2
      ;;
    *)
      if ! grep -q "^$1:" <<<"$machines"; then
        echo "tests/other_machines.sh: there is no machine $1; tests/other_machines.sh --list names them" >&2
        exit 2
      fi
      chosen+=("$1")
      ;;
  esac
  shift
done
[ ${#chosen[@]} -gt 0 ] || mapfile -t chosen < <(grep -o '^[^:]\+' <<<"$machines")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -z "$logs" ] || mkdir -p "$logs"
logs=${logs:-$work}
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache
# build FOLDER PRESET OPTION...
build() { cmake --preset "$2" -B "$1" --log-level=WARNING "${@:3}" >/dev/null && cmake --build "$1" -j "$(nproc)"; }
[ -e "$folder/CTestTestfile.cmake" ] || build "$folder" release

# A locale need not be installed to be used.
has_locale() {
  mkdir -p "$work/locale" && localedef -i de_DE -f UTF-8 "$work/locale/de_DE.UTF-8" 2>/dev/null
  [ "$(LOCPATH=$work/locale LC_ALL=de_DE.UTF-8 locale decimal_point 2>/dev/null)" = , ]
}

status=0
printf '%-14s %8s %8s %6s  %s\n' machine tests passed s failed
for machine in "${chosen[@]}"; do
  read -ra environment <<<"$(sed -n "s/^$machine: *//p" <<<"$machines")"
  built=$folder skipped=
  case $machine in
    server) grep -qw avx512f /proc/cpuinfo || skipped="no AVX-512 here" ;;
    desktop)
      if has_locale; then environment+=(LOCPATH="$work/locale"); else echo "desktop: without a decimal comma (needs Debian's locales)"; fi
      ;;
    portable)
      built=$folder-portable
      # Each source by itself: whose includes are incomplete is found.
      if ! build "$built" portable -DTAPEFORMER_UNITY=OFF >"$logs/build.log" 2>&1; then
        tail -n 20 "$logs/build.log"
        printf '%-14s does not build\n' portable
        status=1
        continue
      fi
      ;;
  esac
  if [ -n "$skipped" ]; then
    printf '%-14s skipped: %s\n' "$machine" "$skipped"
    continue
  fi
  begin=$SECONDS code=0
  env "${environment[@]}" ctest --test-dir "$built" -j "$jobs" -L '^(cpu|everything)$' "${selection[@]}" --output-on-failure \
    --no-tests=error >"$logs/$machine.log" 2>&1 || code=$?
  [ $code -eq 0 ] || status=1
  passed=$(grep -c '^ *[0-9]*/[0-9]* Test .* Passed ' "$logs/$machine.log" || true)
  total=$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$logs/$machine.log")
  failed=$(sed -n 's/^\t *[0-9]* - \(.*\) (\(Failed\|Timeout\|SEGFAULT\|Subprocess.*\|.*Exception.*\))$/\1/p' "$logs/$machine.log")
  [ -n "$failed" ] || [ $code -eq 0 ] || failed="ctest ended with $code"
  printf '%-14s %8s %8s %6d  %s\n' "$machine" "${total:-0}" "$passed" $((SECONDS - begin)) "$(paste -sd ' ' <<<"$failed")"
done
exit $status
