#include <tapeformer/autograd/error.h>
#include <tapeformer/data/tokenizers/json/parts.h>

#include <doctest/doctest.h>

#include <string>

using namespace tapeformer;
using namespace tapeformer::tokenizer_json;

TEST_SUITE("data/tokenizers/json/precompiled") {
  TEST_CASE("a map replaces what its trie holds, in whole graphemes or by characters") {
    CHECK(make_precompiled_normalizer("")("\ufb01") == "\ufb01");
    for (const char* damaged : {"?", "AAAA", "AQAAAAAA", "/////w=="})
      CHECK_THROWS_AS(make_precompiled_normalizer(damaged), UnsupportedPart);
  }
}
