#!/usr/bin/env bash
# Builds the library, the programs and the tests, runs the tests and the structure check.
# Usage: tests/run.sh [--asan] [--tsan] [--slow] [--cuda]
#   --asan  the tests again over a library with the address and undefined-behaviour sanitizers, the CUDA kernels under the
#           emulator's race detector, and the programs on an emulated GPU
#   --tsan  what several threads do, with the thread sanitizer (build/thread-sanitized), and tests nothing else
#   --slow  the slow tests too, and every random case instead of a third
#   --cuda  builds the library and the programs with CUDA instead (build/cuda), where there is nvcc, and tests nothing
# Warnings are errors where CI is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=release packages=() targets=() selection=(-L cpu -LE slow)
for option in "$@"; do
  case $option in
    --asan) targets=(--target sanitized) selection=(-L sanitized) ;;
    --slow)
      selection=(-L 'cpu|slow')
      export TAPEFORMER_ALL_CASES=1
      ;;
    --tsan) preset=thread-sanitized targets=(--target threads) selection=(-L threads) packages=(clang-14 libomp-14-dev) ;;
    --cuda) preset=cuda ;;
    *)
      echo "tests/run.sh: unknown option $option; try --asan, --tsan, --slow, --cuda" >&2
      exit 2
      ;;
  esac
done

if [ "$preset" = cuda ] && ! PATH=$PATH:/usr/local/cuda/bin command -v nvcc >/dev/null; then
  echo "tests/run.sh: there is no nvcc on PATH or in /usr/local/cuda/bin; the CUDA build is skipped"
  exit 0
fi

examples/setup.sh clang-format-14 libopenmpi-dev openmpi-bin python3 chromium doxygen "${packages[@]}"
command -v mpirun >/dev/null && [ "$preset" != thread-sanitized ] && mpi=ON || mpi=OFF
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
if [ "$preset" = cuda ]; then
  # Nothing runs here, so little is optimised that is for the host alone (at -O0 g++ refuses xsimd 8's AVX-512 selects).
  # The oldest architecture stands for all: kernels do not ask which they are compiled for, and those that need sm_90a
  # are compiled for it always.
  cmake --preset cuda --log-level=WARNING -DTAPEFORMER_TESTS=OFF ${CI:+-DTAPEFORMER_WERROR=ON
    -DTAPEFORMER_CUDA_ARCHITECTURES=80-real -DCMAKE_CXX_FLAGS_RELEASE=-O1} >/dev/null
  # The programs are the release build's: that their library is whole is seen without them.
  exec cmake --build --preset cuda -j "$(nproc)" ${CI:+--target tapeformer_whole}
fi
cmake --preset "$preset" --log-level=WARNING -DTAPEFORMER_MPI=$mpi ${CI:+-DTAPEFORMER_WERROR=ON -DTAPEFORMER_PROGRAM_OPTIONS=-O1} >/dev/null
cmake --build --preset "$preset" -j "$(nproc)" "${targets[@]}"

status=0
# Side by side: most tests have one thread, and some wait for others.
UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir "build/$preset" -j "$(($(nproc) + 1))" "${selection[@]}" --output-on-failure \
  --no-tests=error || status=1
tests/structure.sh || status=1
exit $status
