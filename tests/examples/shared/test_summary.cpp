#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/summary.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/optim/parameter_group.h>
#include <tapeformer/tests/examples/arguments.h>

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
    field("share", share, kNotNegative);
    field("on", on, "or off");
    field("unset", unset);
    field("sort", one_of(sort, {"a", "b"}));
  }
};

}  // namespace

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
  CHECK_FALSE(has(text, "head.weight"));  // it is the embedding
  CHECK_FALSE(has(text, "frozen"));
  freeze(model.parameters(), {"*.query_key_value.weight"});
  const std::string frozen = parameters_text(model);
  CHECK(has(frozen, "query_key_value.weight        [24,8]                    192  frozen\n"));
  CHECK(has(frozen, "\nfrozen" + std::string(69, ' ') + "192\n"));
}

TEST_CASE("a table of fields gives their types, defaults, ranges and meanings") {
  Described changed;
  CHECK(fields_table(fields_of(changed)) ==
        "| field | type | default | range | meaning |\n"
        "|---|---|---|---|---|\n"
        "| `size` | whole number | 3 | from 1 to 2147483647 | how many |\n"
        "| `share` | number | 0.25 | not negative |  |\n"
        "| `on` | true or false | true |  | or off |\n"
        "| `unset` | true or false | none |  |  |\n"
        "| `sort` | string | b | a or b |  |\n");
  const Described usual;
  changed.size = 4;
  CHECK(fields_text(fields_of(changed), fields_of(usual)) ==
        "size                       4\n"
        "share                      0.25           default\n"
        "on                         true           default\n"
        "sort                       b              default\n");
  CHECK(changes_text(changed) == "size=4");
}

TEST_CASE("the parts of a language model cost what closed formulas say") {
  DecoderOnlyConfig config;
  config.vocabulary = 11, config.context = 16, config.layers = 2, config.width = 8;
  config.attention = {"gqa", 4};
  config.attention.groups = 2;
  Generator random(test_seed(1));
  DecoderOnly model(config, random);
  const std::string text = costs_text(model);
  CAPTURE(text);
  AttentionCall call;
  call.queries = 16, call.causal = true;
  const AttentionCost attention = attention_cost(config.attention_config(), call);
  const Index feed_forward = 2 * 16 * 2 * 8 * 32, head = 2 * 16 * 8 * 11;
  for (const std::string layer : {"layers.0", "layers.1"}) {
    CHECK(words_after(text, layer + ".attention").at(0) == count_text(attention.forward_flops));
    CHECK(words_after(text, layer + ".feed_forward").at(0) == count_text(feed_forward));
  }
  CHECK(words_after(text, "head").at(0) == count_text(head));
  CHECK(words_after(text, "total").at(0) == count_text(2 * (attention.forward_flops + feed_forward) + head));
  CHECK(words_after(text, "backward") ==
        words_of(count_text(2 * (attention.backward_flops + 2 * feed_forward) + 2 * head)));
  // Two layers, keys and values, two groups of heads of two numbers.
  CHECK(words_after(text, "a token in the caches") == words_of(bytes_text(2 * 2 * 2 * 2 * 4)));
  for (const Parameter& parameter : model.parameters()) CHECK_FALSE(parameter.gradient().defined());
  config.context = 5000;
  DecoderOnly longer(config, random);
  CHECK(has(costs_text(longer), "a row of 1024 tokens "));
}

TEST_CASE("those of a translation model have both halves") {
  EncoderDecoderConfig config;
  config.source_vocabulary = 7, config.target_vocabulary = 9, config.max_length = 6;
  config.encoder_layers = 1, config.decoder_layers = 2, config.layer.width = 8;
  config.layer.attention.heads = 2;
  Generator random(test_seed(1));
  EncoderDecoder model(config, random);
  const std::string text = costs_text(model);
  CAPTURE(text);
  CHECK(words_after(text, "encoder.0.feed_forward").at(0) == count_text(Index{2 * 6 * 2 * 8 * 32}));
  CHECK(words_after(text, "decoder.1.cross_attention").size() > 1);
  CHECK(words_after(text, "encoder.1.feed_forward").empty());
  CHECK(words_after(text, "a source's token in the caches") == words_of(bytes_text(2 * 2 * 8 * 4)));
}

TEST_CASE("parameters that a token does not pass are those of the experts that it does not choose") {
  DecoderOnlyConfig config;
  config.vocabulary = 5, config.layers = 2, config.width = 8, config.experts_from = 1;
  config.experts.width = 3;
  Generator random(test_seed(1));
  for (const auto& [gated, bias] : {std::pair(true, false), {false, true}, {true, true}}) {
    config.gated = gated, config.feed_forward_bias = bias;
    const auto count = [&](Index experts) {  // less the router's
      config.experts.experts = experts;
      return DecoderOnly(config, random).parameter_count() - experts * (config.width + (bias ? 1 : 0));
    };
    const Index active = count(config.experts.active), all = count(6);
    CHECK(idle_parameters(config) == all - active);
  }
}
