#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/optim/parameter_group.h>
#include <tapeformer/tests/reference/seed.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

struct Described {
  Index size = 3;
  double share = 0.25;
  bool on = true;
  std::optional<bool> unset = {};
  std::string sort = "b";

  void describe(const FieldVisitor& field) {
    field("size", size, "how many", kPositiveSize);
    field("share", share, kNotNegative, "0.2.0");
    field("on", on, "or off", kAnyNumber, "0.3.0");
    field("unset", unset);
    field("sort", one_of(sort, {"a", "b"}));
  }
};

}  // namespace

TEST_SUITE("examples/shared/summary") {
  TEST_CASE("a summary has the model's fields, and its parameters with shapes, numbers and their sum") {
    DecoderOnlyConfig config;
    config.vocabulary = 11, config.context = 5, config.layers = 1, config.width = 8;
    config.attention.heads = 2;
    Generator random(test_seed(1));
    DecoderOnly model(config, random);
    const std::string text = summary_of(model);
    CAPTURE(text);
    const auto has_line = [&](const std::string& line) {
      return ("\n" + text).find("\n" + line + "\n") + 1 > 0;
    };
    CHECK(has_line("vocabulary                 11"));
    CHECK(has_line("attention                  mha            default"));
    CHECK(has_line("heads                      2"));
    CHECK(has_line("layers.0.attention.query_key_value.weight        [24,8]                    192"));
    const std::string count = std::to_string(model.parameter_count());
    CHECK(has_line("total" + std::string(73 - count.size(), ' ') + count));
    CHECK(text.find("head.weight") == std::string::npos);  // it is the embedding
    CHECK(text.find("frozen") == std::string::npos);
    freeze(model.parameters(), {"*.query_key_value.weight"});
    const std::string frozen = parameters_text(model);
    CHECK(frozen.find("query_key_value.weight        [24,8]                    192  frozen\n") !=
          std::string::npos);
    CHECK(frozen.find("\nfrozen" + std::string(69, ' ') + "192\n") != std::string::npos);
  }

  TEST_CASE("a table of fields says their type, default, range, meaning, and when they came") {
    Described changed;
    CHECK(fields_table(fields_of(changed)) ==
          "| field | type | default | range | meaning | since |\n"
          "|---|---|---|---|---|---|\n"
          "| `size` | whole number | 3 | from 1 to 2147483647 | how many | 0.1.0 |\n"
          "| `share` | number | 0.25 | not negative |  | 0.2.0 |\n"
          "| `on` | true or false | true |  | or off | 0.3.0 |\n"
          "| `unset` | true or false | none |  |  | 0.1.0 |\n"
          "| `sort` | string | b | a or b |  | 0.1.0 |\n");
    const Described usual;
    changed.size = 4;
    CHECK(fields_text(fields_of(changed), fields_of(usual)) ==
          "size                       4\n"
          "share                      0.25           default\n"
          "on                         true           default\n"
          "sort                       b              default\n");
    CHECK(changes_text(changed) == "size=4");
  }
}
