#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/formats/layouts.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

using namespace tapeformer;

namespace {

std::string numbered_layer(std::string name, Index layer) {
  const std::size_t mark = name.find_first_of("*DF");
  return mark == std::string::npos ? name : name.replace(mark, 1, std::to_string(layer));
}

/// The shapes of parameters, or "tied".
using Shapes = std::map<std::string, std::string>;

Shapes shapes_of(const Layouts& model) {
  Shapes shapes;
  for (const auto& parameter : model.parameters) {
    const std::string& name = parameter.first;
    const std::size_t mark = name.find_first_of("*DF");
    const auto stack = model.layers.find(name.substr(0, mark));
    for (Index layer = 0; layer < (stack == model.layers.end() ? 1 : stack->second); ++layer) {
      const Layout* const found = model.find(name, layer);
      if (found == nullptr || (mark != std::string::npos && name[mark] != '*' &&
                               name[mark] != model.letters.at(static_cast<std::size_t>(layer))))
        continue;
      const Layout& layout = *found;
      Index rows = 0;
      for (const RowBlock& block : layout.blocks) rows += block.rows * std::max<Index>(layout.taps, 1);
      const std::string path = numbered_layer(name, layer);
      const bool is_whole = name.find("head.") == 0 || ends_with(name, "lambda_vectors") ||
                            ends_with(name, "decay_offset") || ends_with(name, "decay_rate") ||
                            ends_with(name, "choice_bias");
      shapes[is_whole ? path : path + ".weight"] =
          (layout.columns > 0 ? Shape{rows, layout.columns} : Shape{rows}).text();
      if (layout.bias) shapes[path + ".bias"] = Shape{rows}.text();
    }
  }
  return shapes;
}

Shapes shapes_of(Module& model) {
  Shapes shapes;
  for (const auto& [name, parameter] : model.named_parameters())
    shapes[name] = parameter.value().shape().text();
  return shapes;
}

template <class Model, class Config>
void check_layouts(const Config& start, const std::vector<std::function<void(Config&)>>& changes) {
  for (const auto& change : changes) {
    Config config = start;
    change(config);
    INFO(config.to_json());
    Generator random(1);
    Model model(config, random);
    CHECK(shapes_of(layouts_of(config)) == shapes_of(model));
  }
}

}  // namespace

TEST_CASE("a language model has these parameters") {
  DecoderOnlyConfig config;
  config.vocabulary = 7, config.layers = 2, config.width = 12;
  using Change = std::function<void(DecoderOnlyConfig&)>;
  check_layouts<DecoderOnly>(
      config,
      std::vector<Change>{
          [](auto&) {}, [](auto& c) { c.tie_head = false, c.gated = true; },
          [](auto& c) {
            c.attention.kind = "gqa", c.attention.groups = 2;
            c.attention.key_width = 5, c.sublayer_norms = SublayerNorms::both;
          },
          [](auto& c) { c.attention.bias = c.feed_forward_bias = c.norm_bias = false; },
          [](auto& c) { c.embedding_norm = true; },
          [](auto& c) {
            c.norm_gain = c.norm_bias = false, c.embedding_norm = true;
            c.sublayer_norms = SublayerNorms::both, c.attention.qk_norm = QkNorm::plain;
          },
          [](auto& c) {
            c.attention.kind = "differential", c.attention.groups = 2;
            c.attention.key_width = 4;
          },
          [](auto& c) {
            c.attention.kind = "differential", c.attention.head_norm_gain = false;
            c.attention.key_width = 4;
          },
          [](auto& c) {
            c.attention.kind = "gated_deltanet", c.attention_pattern = "FD";
            c.full_attention = "gqa", c.attention.groups = 2;
            c.attention.qk_norm = QkNorm::rms, c.attention.output_gate = OutputGate::element;
            c.attention.own = {
                {"state_heads", 6}, {"state_key_heads", 3}, {"state_key_width", 5}, {"state_value_width", 2}};
            c.feed_forward_bias = false, c.experts.experts = 3, c.experts.shared = 5;
            c.experts.shared_gate = true;
          },
          [](auto& c) {
            c.attention.kind = "mla", c.positions = PositionKind::rotary;
            c.attention.query_latent_width = 5, c.attention.latent_width = 3;
          },
          [](auto& c) {
            c.attention.kind = "mla", c.positions = PositionKind::none;
            c.feed_forward_bias = false, c.gated = true;
            c.experts.experts = 3, c.experts.shared = 2, c.experts.width = 4;
          },
          [](auto& c) {
            c.feed_forward_bias = false, c.experts_from = 1;
            c.experts.experts = 3, c.experts.shared = 2;
            c.experts.balance = RouterBalance::bias;
          }});
}

TEST_CASE("a translation model has these parameters") {
  EncoderDecoderConfig config;
  config.source_vocabulary = config.target_vocabulary = 7;
  config.layer.width = 12, config.layer.attention.heads = 3;
  config.encoder_layers = 1, config.decoder_layers = 2;
  using Change = std::function<void(EncoderDecoderConfig&)>;
  check_layouts<EncoderDecoder>(
      config, std::vector<Change>{
                  [](auto&) {}, [](auto& c) { c.tie_embeddings = true, c.layer.norm_first = false; },
                  [](auto& c) { c.tie_target_head = false, c.layer.attention.packed = false; },
                  [](auto& c) { c.decoder_heads = 2, c.decoder_feed_forward = 5, c.layer.feed_forward = 9; },
                  [](auto& c) {
                    c.positions = PositionKind::learned, c.layer.attention.key_width = 5;
                    c.layer.attention.value_width = 6, c.embedding_norm = true;
                  },
                  [](auto& c) {
                    c.positions = PositionKind::buckets, c.shared_buckets = c.layer.gated = true;
                    c.layer.attention.bias = c.layer.feed_forward_bias = c.head_bias = false;
                    c.layer.norm = NormKind::rms;
                  }});
}
