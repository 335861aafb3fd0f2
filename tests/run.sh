#!/usr/bin/env bash
# Builds the library, the programs and the tests, and runs the tests that show that this machine computes right, on its GPU
# too if it has one.
# Usage: tests/run.sh [--everything] [--asan] [--tsan] [--slow] [--cuda]
#   --everything  the rest instead: an emulated GPU, documents, packages, several ranks, killed programs, a browser; then
#                 --asan, other_machines.sh --quick and --cuda
#   --asan        instead: the tests with the address and undefined-behaviour sanitizers, the CUDA kernels under the emulator's
#                 race detector, and the programs on an emulated GPU
#   --tsan        instead: the work of several threads, with the thread sanitizer (build/thread-sanitized)
#   --slow        also the tests that take minutes to hours, and every random case instead of a third
#   --cuda        builds the library and the programs with CUDA instead (build/cuda), where there is nvcc, and tests nothing
# Where CI is set, warnings are errors and the library is for any AVX2 machine; --everything also tests its kernels natively
# and with vectors of 128 bits.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

everything=(clang-format-14 libopenmpi-dev openmpi-bin python3 chromium doxygen)
preset=release packages=() targets=(cpu_tests) labels='^cpu$' rest=no
for option in "$@"; do
  case $option in
    --everything) targets=(all sanitized) labels='^(everything|sanitized)$' packages=("${everything[@]}") rest=yes ;;
    --asan) targets=(sanitized) labels='^sanitized$' packages=("${everything[@]}") ;;
    --slow)
      targets=(all) labels='^(cpu|everything|slow)$' packages=("${everything[@]}")
      export TAPEFORMER_ALL_CASES=1
      ;;
    --tsan) preset=thread-sanitized targets=(threads) labels='^threads$' packages=(clang-14 libomp-14-dev) ;;
    --cuda) preset=cuda ;;
    *)
      echo "tests/run.sh: unknown option $option; try --everything, --asan, --tsan, --slow, --cuda" >&2
      exit 2
      ;;
  esac
done

has_nvcc() { PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null; }
if [ "$preset" = cuda ] && ! has_nvcc; then
  echo "tests/run.sh: there is no nvcc on PATH or in /usr/local/cuda/bin; the CUDA build is skipped"
  exit 0
fi

examples/setup.sh "${packages[@]}"
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
if [ "$preset" = cuda ]; then
  # Nothing runs here, so nothing is optimised (in AVX-512 code g++ refuses xsimd 8's selects then, hence any AVX2 machine).
  # The oldest architecture stands for all: kernels do not ask which they are compiled for, and those that need sm_90a
  # are compiled for it always.
  cmake --preset cuda --log-level=WARNING -DTAPEFORMER_TESTS=OFF ${CI:+-DTAPEFORMER_WERROR=ON -DTAPEFORMER_NATIVE=OFF
    -DCMAKE_BUILD_TYPE=None -DTAPEFORMER_CUDA_ARCHITECTURES=80-real -DTAPEFORMER_CUDA_FLAGS=-Xcicc=-O0;-Xptxas=-O0} >/dev/null
  # The programs are the release build's: that their library is whole is seen without them.
  exec cmake --build --preset cuda -j "$(nproc)" ${CI:+--target tapeformer_whole tapeformer_whole_core}
fi

# What needs MPI is built where everything is: the other sources are compiled alike.
mpi=()
if [ ${#packages[@]} -gt 0 ] && [ "$preset" = release ] && command -v mpirun >/dev/null; then mpi=(-DTAPEFORMER_MPI=ON); fi
cmake --preset "$preset" --log-level=WARNING -DTAPEFORMER_TESTS=ON "${mpi[@]}" ${CI:+-DTAPEFORMER_WERROR=ON -DTAPEFORMER_NATIVE=OFF} >/dev/null
cmake --build --preset "$preset" -j "$(nproc)" --target "${targets[@]}"

status=0
# run_tests FOLDER LABELS: side by side, as most tests have one thread, and some wait for others.
run_tests() {
  UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir "$1" -j "$(($(nproc) + 1))" -L "$2" --output-on-failure \
    --no-tests=error || status=1
}
run_tests "build/$preset" "$labels"
if [ "$labels" = '^cpu$' ]; then
  tests/structure.sh || status=1
  if has_nvcc && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    cmake --preset cuda --log-level=WARNING >/dev/null
    cmake --build --preset cuda -j "$(nproc)" --target tapeformer_tests
    run_tests build/cuda '^gpu$'
  fi
fi
if [ $rest = yes ]; then
  tests/other_machines.sh --quick || status=1
  timeout 1800 tests/run.sh --cuda || status=1
fi
exit $status
