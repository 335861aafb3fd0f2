#include <tapeformer/autograd/format.h>
#include <tapeformer/nn/formats/layouts.h>
#include <tapeformer/nn/transformer/decoder_only.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

/// "rows / heads" of each block of a parameter of the last layer's attention.
std::string blocks_of(const DecoderOnlyConfig& config, const std::string& name) {
  Generator random(1);
  DecoderOnly model(config, random);
  const Layout layout = layouts_of(model).parameters.at("layers.1.attention." + name);
  return joined(layout.blocks, ", ",
                [](const RowBlock& block) { return format("{} / {}", block.rows, block.heads); });
}

DecoderOnlyConfig two_layers(const char* kind) {
  DecoderOnlyConfig config;
  config.vocabulary = 7, config.layers = 2, config.width = 12;
  config.attention.kind = kind, config.attention.key_width = 4;
  return config;
}

}  // namespace

TEST_CASE("the rows of queries and keys have heads, which some tensors of other programs have together") {
  DecoderOnlyConfig config = two_layers("gqa");
  config.attention.qk_norm = QkNorm::joint;
  CHECK(blocks_of(config, "query_key_value.weight") == "16 / 4, 8 / 2, 8 / 0");
  CHECK(blocks_of(config, "key_norm.weight") == "8 / 2");
  config.attention.qk_norm = QkNorm::rms;
  CHECK(blocks_of(config, "key_norm.weight") == "4 / 1");
  CHECK(blocks_of(two_layers("mla"), "query_rotary.weight") == "8 / 4");
  CHECK(blocks_of(two_layers("differential"), "key_value.weight") == "16 / 8, 16 / 0");
  CHECK(blocks_of(two_layers("differential"), "lambda_vectors") == "2 / 0, 2 / 0, 2 / 0, 2 / 0");
  CHECK(blocks_of(two_layers("kda"), "convolution.weight") == "16 / 0, 16 / 0, 16 / 0");
}
