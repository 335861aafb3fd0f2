#include <tapeformer/nn/attention/attention_config.h>
#include <tapeformer/tests/reference/support.h>

#include <doctest/doctest.h>

using namespace tapeformer;

TEST_SUITE("nn/attention/attention_config") {
  TEST_CASE("kinds are named, and an unknown one is told which there are") {
    for (const char* name : {"mha", "gqa", "mqa", "mla", "additive"}) {
      CHECK(std::string(name_of(attention_kind(name))) == name);
    }
    CHECK(message_of<Error>([] { attention_kind("linear"); }) ==
          "[attention] the kind must be one of mha, gqa, mqa, mla, additive; got linear");
  }
}
