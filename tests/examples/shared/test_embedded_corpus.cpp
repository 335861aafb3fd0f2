#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/utf8.h>
#include <tapeformer/examples/shared/embedded_corpus.h>
#include <tapeformer/tests/nn/formats/temporary_folder.h>

#include <algorithm>
#include <sstream>
#include <vector>

using namespace tapeformer;

namespace {

/// What the corpus says of a file, with the line in front of it.
std::string entry_of(const std::string& name) {
  return "=== " + name + " ===\n" + read_bytes(std::string(TAPEFORMER_SOURCE_DIR) + "/" + name);
}

/// The files that the lines between them name.
std::vector<std::string> embedded_names() {
  std::vector<std::string> names;
  std::istringstream text{std::string(embedded_corpus())};
  for (std::string line; std::getline(text, line);) {
    const bool heading =
        line.size() > 8 && line.compare(0, 4, "=== ") == 0 && line.compare(line.size() - 4, 4, " ===") == 0;
    if (heading) names.push_back(line.substr(4, line.size() - 8));
  }
  return names;
}

}  // namespace

TEST_SUITE("examples/shared/embedded_corpus") {
  TEST_CASE("the corpus holds the sources of the library and the programs") {
    const std::string_view corpus = embedded_corpus();
    for (const char* name : {"autograd/tape.h", "autograd/kernels/cuda/softmax.cu", "data/batching.cpp",
                             "examples/shared/embedded_corpus.h", "nn/linear.cpp", "optim/adamw.h"}) {
      CAPTURE(name);
      CHECK(entry_of(name).size() > 100);
      CHECK((corpus.find(entry_of(name)) != corpus.npos));
    }
  }

  TEST_CASE("the corpus is UTF-8 and nothing but text") {
    const std::string_view corpus = embedded_corpus();
    CHECK(find_invalid_utf8(corpus) == corpus.npos);
    CHECK(corpus.find('\0') == corpus.npos);
    CHECK(corpus.substr(0, 4) == "=== ");
    CHECK(corpus.back() == '\n');
    CHECK(corpus.size() > 1'000'000);
  }

  TEST_CASE("every file is there once, in order") {
    const std::vector<std::string> names = embedded_names();
    CHECK(names.size() > 300);
    CHECK(std::is_sorted(names.begin(), names.end()));
    CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
    for (const std::string& name : names) {
      CAPTURE(name);
      CHECK(std::filesystem::is_regular_file(std::string(TAPEFORMER_SOURCE_DIR) + "/" + name));
      CHECK(name.rfind("tests/", 0) == name.npos);
    }
  }
}
