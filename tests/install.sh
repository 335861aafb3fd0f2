#!/usr/bin/env bash
# Installs a build and uses the library from a project outside, by the lines that the README shows.
# Usage: install.sh BUILD_FOLDER
set -u
build=$(realpath "$1") source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
. "$source/tests/examples/program_test.sh" "$build"
prefix=$work/prefix project=$work/project
mkdir "$project"
sed -n '/^```cmake$/,/^```$/{/^```/!p}' "$source/README.md" >"$project/CMakeLists.txt"
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
  std::cout << y.shape().text() << "\n";
}
CPP

export CMAKE_GENERATOR=Ninja  # which setup.sh installs, and make it does not
# With the compiler of the build: another may not know its OpenMP library.
export CXX=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
configures() { cmake -S "$project" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" "$@" >"$work/out" 2>"$work/err"; }
# refuses_version VERSION
refuses_version() {
  sed "s/tapeformer 0.1 REQUIRED/tapeformer $1 REQUIRED/" -i "$project/CMakeLists.txt"
  check "find_package(tapeformer $1) is refused" sh -c "! cmake -S '$project' -B '$work/build-$1' -DCMAKE_PREFIX_PATH='$prefix'"
  sed "s/tapeformer $1 REQUIRED/tapeformer 0.1 REQUIRED/" -i "$project/CMakeLists.txt"
}

check "the README shows a whole CMakeLists.txt" grep -q 'tapeformer::tapeformer' "$project/CMakeLists.txt"
check "it installs" cmake --install "$build" --prefix "$prefix"
check "the README's lines find version 0.1" configures
check "without a warning" test ! -s "$work/err"
check "they build a program" cmake --build "$work/build"
check "which runs" test "$("$work/build/mine")" = "[1,3,4]"
refuses_version 0.2
refuses_version 1

sed 's/tapeformer::tapeformer/tapeformer/' -i "$project/CMakeLists.txt"
check "plain tapeformer is linked as well" configures
check "and CMake says what is meant" grep -q 'Link tapeformer::tapeformer' "$work/err"
check "the program is still made" cmake --build "$work/build"

echo "$passed passed, $failed failed"
test "$failed" = 0
