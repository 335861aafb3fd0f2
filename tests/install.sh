#!/usr/bin/env bash
# Installs a build and uses the library from a project outside, by the lines that examples/packaging/README.md shows: installed, moved
# elsewhere, by pkg-config and as a part of the project.
# Usage: install.sh BUILD_FOLDER [--everything]
#   --everything  also builds what costs another build of the library: it as part of the project, and a shared library; and
#                 the Python module with the installed library
set -u
build=$(realpath "$1") source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
everything=${2:-}
. "$source/tests/examples/program_test.sh" "$build"
prefix=$work/prefix project=$work/project
mkdir "$project"
# lines_of TEXT: that document's block of CMake that has it.
lines_of() {
  awk -v text="$1" '/^```cmake$/ { inside = 1; block = ""; next }
    /^```$/ { if (inside && index(block, text)) printf "%s", block; inside = 0 }
    inside { block = block $0 "\n" }' "$source/examples/packaging/README.md"
}
lines_of 'find_package(tapeformer' >"$project/CMakeLists.txt"
cat >"$project/main.cpp" <<'CPP'
#include <tapeformer/tapeformer.h>

#include <iostream>

using namespace tapeformer;

int main() {
  Generator random(42);
  AttentionConfig config;
  config.width = 6, config.output_width = 4, config.heads = 2;
  MultiHeadAttention attention(config, random);
  AdamW optimizer(attention.parameters());
  Tape tape;
  const Tensor x = Tensor::full({1, 3, 6}, 0.5), y = attention(x, x);
  tape.backward(sum(y));
  optimizer.step(1e-3);
  try {
    matmul(x, y);
  } catch (const ShapeError&) {
    std::cout << y.shape().text() << "\n";
  }
}
CPP

export CMAKE_GENERATOR=Ninja  # which setup.sh installs, and make it does not
# With the compiler of the build: another may not know its OpenMP library.
export CXX=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
configures() { cmake -S "$project" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" "$@" >"$work/out" 2>"$work/err"; }
# asks WORDS: a project's find_package(tapeformer WORDS), and then what was found.
mkdir "$work/asking"
asks() {
  printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(asking LANGUAGES CXX)' "find_package(tapeformer $1)" \
    'message(STATUS "found ${tapeformer_FOUND} programs ${tapeformer_programs_FOUND} cuda ${tapeformer_cuda_FOUND}")' \
    'if(TARGET tapeformer::train_language_model)' \
    'get_target_property(program tapeformer::train_language_model LOCATION)' 'message(STATUS "program ${program}")' \
    'endif()' >"$work/asking/CMakeLists.txt"
  cmake -S "$work/asking" -B "$work/asked" -DCMAKE_PREFIX_PATH="$prefix" >"$work/out" 2>"$work/err"
}
# refuses_to_find WORDS SENTENCE
refuses_to_find() {
  asks "$1"
  check "find_package(tapeformer $1) is refused" test $? != 0
  check "and says '$2'" sh -c "tr -s ' \n' ' ' <'$work/err' | grep -q '$2'"
}

check "the README shows a whole CMakeLists.txt" grep -q 'tapeformer::tapeformer' "$project/CMakeLists.txt"
check "it installs" cmake --install "$build" --prefix "$prefix"
check "the README's lines find version 0.1" configures
check "without a warning" test ! -s "$work/err"
check "they build a program" cmake --build "$work/build"
check "which runs" test "$("$work/build/mine")" = "[1,3,4]"
check "no warnings or instructions are asked of it" sh -c "! grep -qE -- '-Wall|-march' '$work/build/build.ninja'"
refuses_to_find '0.2 REQUIRED' 'compatible with requested version'
refuses_to_find '1 REQUIRED' 'compatible with requested version'

asks '0.1 REQUIRED COMPONENTS programs'
check "the component programs is found" test $? = 0
check "with a program that runs" "$(sed -n 's/^-- program //p' "$work/out")" --version
cuda=$(sed -n 's/^TAPEFORMER_CUDA:BOOL=//p' "$build/CMakeCache.txt")
asks '0.1 OPTIONAL_COMPONENTS cuda'
check "cuda is found if it was built" grep -q "found 1 .* cuda $cuda" "$work/out"
[ "$cuda" = ON ] || refuses_to_find '0.1 REQUIRED COMPONENTS cuda' 'without the component cuda; build and install it with -DTAPEFORMER_CUDA=ON'
refuses_to_find '0.1 REQUIRED COMPONENTS gpu' 'no component gpu; it has programs, cuda and mpi'

if python3 -m nanobind --version >/dev/null 2>&1; then
  check "the Python module finds it" cmake -S "$source/examples/python" -B "$work/python" \
    -DPython_EXECUTABLE="$(command -v python3)" -Dtapeformer_ROOT="$prefix"
  check "without building the library again" sh -c "ninja -C '$work/python' -t targets all >'$work/out' && ! grep -q softmax.cpp '$work/out'"
  if [ "$everything" = --everything ]; then
    check "is built with it" cmake --build "$work/python" --target _tapeformer tapeformer_stub
    check "and works" ctest --test-dir "$work/python"
  fi
else
  echo "install: python3 has no nanobind; the Python module is not tried"
fi

# Somewhere else.
mv "$prefix" "$work/moved" && prefix=$work/moved
sed 's/tapeformer::tapeformer/tapeformer/' -i "$project/CMakeLists.txt"
check "plain tapeformer is linked as well, from where the tree was moved" configures --fresh
check "and CMake says what is meant" grep -q 'Link tapeformer::tapeformer' "$work/err"
check "the program is still made" cmake --build "$work/build"
check "no file of CMake says where the tree was" sh -c "! grep -rq '$work/prefix' '$prefix/lib'"
export PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name tapeformer.pc)")
if command -v pkg-config >/dev/null; then
  # All that is installed in one source: no header needs one that is not.
  (cd "$prefix/include" && find tapeformer -name '*.h' | sort | sed 's/.*/#include <&>/') | cat - "$project/main.cpp" >"$work/main.cpp"
  check "by pkg-config" sh -c "$CXX -std=c++17 '$work/main.cpp' \$(pkg-config --cflags --libs tapeformer) -o '$work/by_pkg_config' 2>'$work/err'"
  check "which runs as well" test "$("$work/by_pkg_config")" = "[1,3,4]"
else
  echo "install: pkg-config is not installed; tapeformer.pc is not tried"
fi

# As part of a project that wants none of our settings; FetchContent takes the sources from where it is told.
{
  lines_of 'find_package(tapeformer' | grep -v -e find_package -e tapeformer:: -e add_executable
  lines_of 'FetchContent_MakeAvailable'
  lines_of 'find_package(tapeformer' | grep -e tapeformer:: -e add_executable
  echo 'foreach(setting CMAKE_BUILD_TYPE CMAKE_CXX_STANDARD CMAKE_CXX_EXTENSIONS CMAKE_EXPORT_COMPILE_COMMANDS CMAKE_CXX_FLAGS)'
  echo '  message(STATUS "setting [${setting}] [${${setting}}]")'
  echo 'endforeach()'
} >"$project/CMakeLists.txt"
inside=$work/inside
check "the README's lines of FetchContent are found" cmake -S "$project" -B "$inside" \
  -DFETCHCONTENT_SOURCE_DIR_TAPEFORMER="$source"
cmake "$inside" >"$work/out" 2>"$work/err"
check "without a warning" test ! -s "$work/err"
check "the project's settings stay as they were" test "$(grep -c '^-- setting \[.*\] \[\]' "$work/out")" = 5
check "no programs or tests are built" sh -c "ninja -C '$inside' -t targets all >'$work/out' &&
  ! grep -qE 'tapeformer_tests|tapeformer_programs|train_|bench|minimal' '$work/out'"
check "its flags stay with the library" sh -c "ninja -C '$inside' -t commands mine | grep -- '-c .*/main.cpp' >'$work/command' &&
  ! grep -qE -- ' (-W|-march|-O|-std|-f(no|PIC|vis))' '$work/command'"
check "the library is optimised, for any AVX2 machine" sh -c "ninja -C '$inside' -t commands mine | grep 'softmax.cpp.o' | grep -q -- '-O3.*-march=x86-64-v3'"
check "nothing of it is installed" sh -c "cmake --install '$inside' --prefix '$work/nothing' && test ! -e '$work/nothing'"

if [ "$everything" = --everything ]; then
  check "it builds as part of the project" cmake --build "$inside" --target mine
  check "and runs" test "$("$inside/mine")" = "[1,3,4]"
  shared=$work/shared prefix=$work/shared_prefix
  check "a shared library is configured" cmake -S "$source" -B "$shared" -DBUILD_SHARED_LIBS=ON
  check "and built, with the programs" cmake --build "$shared"
  check "and installed" cmake --install "$shared" --prefix "$prefix"
  library=$(find "$prefix" -name 'libtapeformer.so.0.1')
  check "its name is that of the minor version" sh -c "readelf -d '$library' | grep -q 'SONAME.*libtapeformer.so.0.1]'"
  nm -DC --defined-only "$library" >"$work/symbols"
  check "it shows the library" grep -q ' tapeformer::Tape::backward' "$work/symbols"
  check "and of the kernels one function" test "$(grep -c ' T tapeformer::kernels::' "$work/symbols")" = 1
  check "and nothing of other libraries" sh -c "! cut -c 20- '$work/symbols' | grep -qvE 'tapeformer::'"
  lines_of 'find_package(tapeformer' >"$project/CMakeLists.txt"
  check "a project finds it" configures --fresh
  check "builds with it" cmake --build "$work/build"
  check "and runs" test "$("$work/build/mine")" = "[1,3,4]"
  check "installed programs find it" "$prefix/bin/train_language_model" --version
fi

ends_here
