#!/usr/bin/env bash
# Tries what is committed here on other systems: makes a bare system of each in a folder (debootstrap), clones into it, and
# prints a table with exit codes and times. On a release of Debian it runs both commands of the README from nothing as root,
# examples/quickstart.sh and tests/run.sh. For 64-bit Arm it cross-compiles the library, the programs and the tests, and
# runs the tests of the library and a few steps of each program under qemu, too slowly to measure.
# Usage: tests/other_systems.sh [--folder F] [--only quickstart|tests] [SYSTEM...]
#   SYSTEM      bookworm and trixie unless given, or arm64
#   --folder F  where the systems are kept, some 3 GB each; those that are there already are used again, with the packages
#               they have. Without it a temporary folder, removed at the end
#   --only C    one of the two commands
# Needs root, debootstrap and a mirror: $MIRROR, or the one that this machine's APT uses. 0: all passed, 1: some failed,
# 77: something it needs is not here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder='' only='' systems=()
while [ $# -gt 0 ]; do
  case $1 in
    --folder) folder=${2:?--folder needs a folder} && shift ;;
    --only)
      only=${2:?--only needs quickstart or tests} && shift
      [[ $only == quickstart || $only == tests ]] || { echo "tests/other_systems.sh: --only is quickstart or tests" >&2 && exit 2; }
      ;;
    -*)
      echo "tests/other_systems.sh: unknown option $1; try --folder F, --only quickstart|tests" >&2
      exit 2
      ;;
    *) systems+=("$1") ;;
  esac
  shift
done
[ ${#systems[@]} -gt 0 ] || systems=(bookworm trixie)

. tests/bare_system.sh

if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf --one-file-system "$folder"' EXIT
fi
mkdir -p "$folder"

# try SYSTEM COMPILER NAME COMMAND...: a command, whose output is kept, and its line of the table.
table='' status=0
try() {
  local root=$folder/$1 log=$folder/$1-${3//[^a-z_]/-}.log begun=$SECONDS code=0 seconds
  echo "$1: $3, its output in $log"
  in_system "$root" "${@:4}" >"$log" 2>&1 </dev/null || code=$?
  [ $code -eq 0 ] || { status=1 && tail -n 20 "$log"; }
  seconds=$((SECONDS - begun))
  table+=$(printf '%-10s %-8s %-24s %4d %5d:%02d' "$1" "$(in_system "$root" "$2" -dumpfullversion 2>/dev/null || true)" \
    "$3" $code $((seconds / 60)) $((seconds % 60)))$'\n'
}

declare -A scripts=([quickstart]=examples/quickstart.sh [tests]=tests/run.sh)
release() {
  make_system "$folder/$1" "$1" ca-certificates
  local command script
  rm -rf "$folder/$1/usr/src/tapeformer"
  git clone -q --no-hardlinks . "$folder/$1/usr/src/tapeformer"
  for command in ${only:-quickstart tests}; do
    script=${scripts[$command]}
    try "$1" g++ $script "/usr/src/tapeformer/$script"
  done
}

# Libraries are arm64's; of xtensor and xsimd there are headers alone, and Debian's packages of xtensor for a foreign
# architecture want a package that does not exist. Sources and objects are used again.
arm64() {
  local compiler=aarch64-linux-gnu-g++ source=$folder/arm64/usr/src/tapeformer build=/usr/src/tapeformer/build/arm64 part
  make_system "$folder/arm64" bookworm ca-certificates "
    dpkg --add-architecture arm64
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends g++-aarch64-linux-gnu qemu-user-static \
      cmake ninja-build libxtensor-dev libxtensor-blas-dev libxsimd-dev nlohmann-json3-dev libcli11-dev doctest-dev \
      lib{openblas-openmp,dnnl,sentencepiece,utf8proc,yaml,pcre2}-dev:arm64"
  [ -e "$source" ] || git clone -q --no-hardlinks . "$source"
  git -C "$source" fetch -q "$PWD" HEAD
  git -C "$source" reset -q --hard FETCH_HEAD
  try arm64 $compiler build bash -ec "
    cmake -S /usr/src/tapeformer -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release ${CI:+-DTAPEFORMER_WERROR=ON} \
      -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$compiler \
      -DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64-static \
      -Dxtensor_DIR=/usr/lib/x86_64-linux-gnu/cmake/xtensor -Dxsimd_DIR=/usr/lib/x86_64-linux-gnu/cmake/xsimd
    cmake --build $build -j $(nproc) --target tapeformer_tests \
      train_translation train_language_model gradcheck_attention"
  for part in autograd/ data/ nn/ optim/; do
    try arm64 $compiler "ctest -R ^$part" env TAPEFORMER_GRADCHECK_ELEMENTS=3 ctest --test-dir $build -j "$(nproc)" \
      -R "^$part" --output-on-failure --no-tests=error
  done
  rm -rf "$folder/arm64$build/examples/runs"
  local of_both='--width 16 --heads 2 --feed-forward 32 --steps 3 --threads 2'
  step() { try arm64 $compiler "${1%% *}" sh -c "cd $build/examples && OMP_WAIT_POLICY=passive qemu-aarch64-static $1"; }
  step "train_translation train --run runs/translation --grammar-pairs 400 --held-out 20 --tokenizer word \
    --encoder-layers 1 --decoder-layers 1 --batch-tokens 256 $of_both"
  step "train_language_model train --run runs/language --layers 1 --context 32 --batch 4 $of_both"
  step "gradcheck_attention --layer multi_head --elements 3"
}

for system in "${systems[@]}"; do
  if [ "$system" = arm64 ]; then arm64; else release "$system"; fi
done
printf '\n%-10s %-8s %-24s %4s %8s\n%s' system g++ command exit time "$table"
exit $status
