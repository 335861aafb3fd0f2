#!/usr/bin/env bash
# Everything that tests/gpu_check.sh needs in one file, for a machine with a Hopper GPU and PyTorch but without compilers,
# libraries or a network, and for which there is only half an hour.
# Usage: tests/gpu_bundle.sh build CORPUS
#        tests/gpu_bundle.sh check
#        tests/gpu_bundle.sh run A|B|C [RESULTS] [OPTIONS...]
#        tests/gpu_bundle.sh rehearse A|B|C [RESULTS] [--hang SOURCES]
#   build     makes build/gpu_bundle.tar.xz (45 MB at most): programs, tests and benches for AVX2 and compute capability 9.0, the
#             shared libraries that they load, golden values, the scripts that compare with PyTorch, and CORPUS, a text that the
#             character model learns: Tiny Shakespeare, for its aim. Needs nvcc
#   check     proves it whole: in an empty folder without an environment, and in a system that has nothing but a C library and
#             Python, all programs start and the tests that need no GPU pass. Needs root and debootstrap
#   run       unpacks it where it has not been, and runs a set of gpu_check.sh's parts (A: is it right, B: is it fast, C: why) within
#             nine minutes, whatever hangs. RESULTS gets the tables and logs; gpu_results unless given. OPTIONS go to gpu_check.sh
#   rehearse  the same with the programs of build/release that have an emulated GPU, few steps each; --hang makes the tests of
#             SOURCES, say hopper, wait for ever
# Exit code 0: all is well, 1: something failed, 2: bad usage, 77: what it needs is not here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bundle=build/gpu_bundle.tar.xz most_bytes=45000000
unpacked=$PWD/build/gpu_unpacked

refuse() {
  echo "tests/gpu_bundle.sh: $1" >&2
  exit 2
}
skip() {
  echo "tests/gpu_bundle.sh: skipped: $1"
  exit 77
}

build() {
  local corpus=${1:?build needs a text, the corpus of the character model} stage=build/gpu_bundle/stage program library
  PATH=$PATH:/usr/local/cuda/bin
  command -v nvcc >/dev/null || skip "there is no nvcc on PATH or in /usr/local/cuda/bin"
  [ -f "$corpus" ] || refuse "there is no $corpus"
  # Libraries, and those that they need, are looked for first next to the programs: by DT_RPATH, which applies to all of
  # them, unlike DT_RUNPATH, and not to PyTorch, unlike LD_LIBRARY_PATH.
  cmake -S . -B build/gpu_bundle -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release -DTAPEFORMER_CUDA=ON -DTAPEFORMER_NATIVE=OFF \
    -DTAPEFORMER_CUDA_ARCHITECTURES=90a-real "-DCMAKE_BUILD_RPATH=\$ORIGIN/../lib" \
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >/dev/null
  cmake --build build/gpu_bundle -j "$(nproc)" --target tapeformer_tests bench train_translation train_language_model gradcheck_attention
  rm -rf "$stage"
  mkdir -p "$stage"/build/{tests,examples,lib}
  for program in tests/{tapeformer_tests,bench} examples/{train_translation,train_language_model,gradcheck_attention}; do
    strip -o "$stage/build/$program" "build/gpu_bundle/$program"
  done
  # All but the C library, which belongs to the machine's loader.
  ldd "$stage"/build/{tests,examples}/* | grep -o '/[^ ]*\.so[^ ]*' | sort -u |
    grep -vE '/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv)\.so[^/]*)$' >build/gpu_bundle/libraries
  while read -r library; do
    cp -L "$library" "$stage/build/lib/${library##*/}"
    strip --strip-unneeded "$stage/build/lib/${library##*/}"
  done <build/gpu_bundle/libraries
  cp -r --parents tests/golden tests/bench tests/gpu_{bundle,check,parts}.sh "$stage"
  cp "$corpus" "$stage/corpus.txt"
  realpath . >"$stage/source_folder"
  # The programs hold the same kernels: the window must reach from one to the next.
  tar -C "$stage" --sort=name --owner=0 --group=0 -cf - . | xz -T1 -6 --lzma2=preset=6e,dict=512MiB >"$bundle.part"
  mv "$bundle.part" "$bundle"
  du -h --apparent-size -d 3 "$stage" | sort -k 2
  echo "$bundle: $(stat -c %s "$bundle") bytes of $most_bytes at most"
  [ "$(stat -c %s "$bundle")" -le $most_bytes ]
}

# unpack FOLDER: and the compiled-in path of the sources, where the tests look for golden values, becomes a link to it.
unpack() {
  local source
  [ -f "$bundle" ] || refuse "there is no $bundle; make it with tests/gpu_bundle.sh build"
  rm -rf "$1"
  mkdir -p "$1"
  if command -v xz >/dev/null; then tar -C "$1" -xJf "$bundle"; else python3 -m tarfile -e "$bundle" "$1"; fi
  source=$(cat "$1/source_folder")
  if [ ! -e "$source/tests/golden" ]; then
    mkdir -p "${source%/*}"
    ln -sfn "$1" "$source"
  fi
}

# starts COMMAND_PREFIX...: all programs, and the tests that need no GPU, of an unpacked bundle.
starts() {
  local program
  for program in train_translation train_language_model gradcheck_attention; do
    "$@" "$unpacked/build/examples/$program" --help >/dev/null || return
  done
  echo "the programs start"
  "$@" "$unpacked/build/tests/bench" train_step --list >/dev/null || return
  "$@" "$unpacked/build/tests/tapeformer_tests" --source-file-exclude='*/test_cuda_*,*/autograd/cuda/*' --test-case-exclude='slow:*' \
    >"$log" 2>&1 || { grep -A 6 ERROR "$log" | head -n 100 && return 1; }
  grep '^\[doctest\] [ta]' "$log"
}

check() {
  local system=build/gpu_bundle/system
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  log=$scratch/log unpacked=$scratch/bundle
  unpack "$unpacked"
  echo "--- in $unpacked, without an environment"
  (cd "$unpacked" && starts env -i) || return

  . tests/bare_system.sh
  make_system "$system" trixie python3-minimal,xz-utils
  system=$(realpath "$system")
  rm -rf --one-file-system "$system/usr/src/checkout"
  mkdir -p "$system/usr/src/checkout/build"
  cp -r --parents tests/gpu_{bundle,check,parts}.sh "$bundle" "$system/usr/src/checkout"
  echo "--- in a system with a C library and Python, $(cat "$system/etc/debian_version")"
  # It ends with 77: there is no GPU.
  in_system "$system" bash /usr/src/checkout/tests/gpu_bundle.sh run A || [ $? = 77 ] || return
  unpacked=/usr/src/checkout/build/gpu_unpacked
  starts in_system "$system"
}

# link_library FOLDER NAME WITHOUT: a library that is not in the bundle, from the toolkit's folder or PyTorch's; otherwise
# says what will fail without it.
link_library() {
  local found
  # Neither folder nor any of these modules need exist.
  found=$(find -L /usr/local/cuda/{lib64,targets/x86_64-linux/lib} -maxdepth 1 -name "$2.so.[0-9]*" 2>/dev/null | head -n 1) || true
  [ -n "$found" ] || found=$(timeout 60 python3 -c '
import importlib.util, pathlib, sys
for name in ("nvidia", "torch"):
    spec = importlib.util.find_spec(name)
    for folder in (spec.submodule_search_locations if spec else []):
        for path in pathlib.Path(folder).rglob(sys.argv[1] + ".so.*"):
            print(path)' "$2" 2>/dev/null | head -n 1) || true
  if [ -n "$found" ]; then
    ln -sf "$found" "$1/build/lib/$(basename "$found" | grep -o "$2\.so\.[0-9]*")"
  else
    echo "tests/gpu_bundle.sh: there is no $2 in the toolkit's folders or PyTorch's; $3 will fail" >&2
  fi
}

# read_run SET [RESULTS] [OPTIONS...]: into chosen, results and rest.
read_run() {
  [[ ${1-} =~ ^[ABC]$ ]] || refuse "name a set, A, B or C; got ${1-nothing}"
  chosen=$1 results=gpu_results
  shift
  if [ $# -gt 0 ] && [[ $1 != --* ]]; then
    results=$1
    shift
  fi
  mkdir -p "$results"
  results=$(realpath "$results")
  rest=("$@")
}

run() {
  local options=()
  export SECONDS # the check's time begins here
  read_run "$@"
  [ -e "$unpacked/source_folder" ] || unpack "$unpacked"
  link_library "$unpacked" libcublasLt "matrix products"
  link_library "$unpacked" libnccl "training on several GPUs"
  [ "$chosen" = A ] || ! timeout 120 python3 -c 'import torch' 2>/dev/null || options=(--python python3)
  exec "$unpacked/tests/gpu_check.sh" --set "$chosen" --built "$unpacked/build" --corpus "$unpacked/corpus.txt" \
    --logs "$unpacked/logs/$chosen" --results "$results" "${options[@]}" "${rest[@]}"
}

rehearse() {
  local stage=build/gpu_rehearsal hang program built
  read_run "$@"
  built=$(realpath build/release)
  [ -x "$built/tests/tapeformer_tests_emulated" ] || refuse "there is no build/release with the tests; make it with tests/run.sh"
  mkdir -p $stage/{tests,examples}
  ln -sf "$built/tests/bench_emulated" $stage/tests/bench
  for program in train_translation train_language_model gradcheck_attention; do
    ln -sf "$built/tests/${program}_emulated" $stage/examples/$program
  done
  hang=
  [ "${rest[0]-}" != --hang ] || hang=${rest[1]:?--hang needs a part of the name of sources}
  cat >$stage/tests/tapeformer_tests <<END
#!/bin/bash
[ -z "$hang" ] || [[ "\$*" != *"$hang"* ]] || sleep infinity
exec "$built/tests/tapeformer_tests_emulated" "\$@"
END
  chmod +x $stage/tests/tapeformer_tests
  TAPEFORMER_GRADCHECK_ELEMENTS=1 exec tests/gpu_check.sh --set "$chosen" --built $stage --logs "$stage/$chosen" --results "$results" --steps 3
}

case ${1-} in
  build | check | run | rehearse) "$@" ;;
  *) refuse "say what to do: build, check, run A|B|C or rehearse A|B|C" ;;
esac
