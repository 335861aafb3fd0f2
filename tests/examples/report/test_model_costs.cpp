#include <tapeformer/examples/report/model_costs.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/tests/reference/seed.h>

#include <doctest/doctest.h>

#include <sstream>
#include <string>

using namespace tapeformer;

namespace {

/// The columns behind `name`, as one text with single spaces.
std::string columns_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, name.size() + 1, name + " ") != 0) continue;
    std::istringstream words(line.substr(name.size()));
    std::string columns;
    for (std::string word; words >> word;) columns += (columns.empty() ? "" : " ") + word;
    return columns;
  }
  return "none";
}

}  // namespace

TEST_SUITE("examples/report/model_costs") {
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
      CHECK(columns_of(text, layer + ".attention").find(count_text(attention.forward_flops) + " ") == 0);
      CHECK(columns_of(text, layer + ".feed_forward").find(count_text(feed_forward) + " ") == 0);
    }
    CHECK(columns_of(text, "head").find(count_text(head) + " ") == 0);
    CHECK(columns_of(text, "total")
              .find(count_text(2 * (attention.forward_flops + feed_forward) + head) + " ") == 0);
    CHECK(columns_of(text, "backward") ==
          count_text(2 * (attention.backward_flops + 2 * feed_forward) + 2 * head));
    // Two layers, keys and values, two groups of heads of two numbers.
    CHECK(columns_of(text, "a token in the caches") == bytes_text(2 * 2 * 2 * 2 * 4));
    for (const Parameter& parameter : model.parameters()) CHECK_FALSE(parameter.gradient().defined());
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
    CHECK(columns_of(text, "encoder.0.feed_forward").find(count_text(Index{2 * 6 * 2 * 8 * 32}) + " ") == 0);
    CHECK(columns_of(text, "decoder.1.cross_attention") != "none");
    CHECK(columns_of(text, "encoder.1") == "none");
    CHECK(columns_of(text, "a source's token in the caches") == bytes_text(2 * 2 * 8 * 4));
  }
}
