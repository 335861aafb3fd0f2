#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/generation/translation_steps.h>
#include <tapeformer/tests/nn/module_case.h>

namespace tapeformer {

constexpr std::int32_t kBeginId = 2, kEndId = 3;

/// An attention kind as used in a decoder.
struct DecoderKind {
  std::string attention;
  bool rotary;
  PositionKind positions;
  bool norm_first;

  std::string name() const { return attention + (rotary ? ", rotary" : "") + ", " + name_of(positions); }
};

inline const std::vector<DecoderKind>& decoder_kinds() {
  static const std::vector<DecoderKind> kinds = [] {
    std::vector<DecoderKind> all = {{"mha", false, PositionKind::sinusoidal, true}};
    for (const AttentionKind& kind : attention_kinds()) {
      if (kind.can & kOnlyCausal) continue;
      const bool rotary = kind.can & kCanRotate;
      all.push_back({kind.name, false, PositionKind::learned, all.size() % 4 > 1});
      all.push_back(
          {kind.name, rotary, rotary ? PositionKind::rotary : PositionKind::sinusoidal, all.size() % 4 > 2});
    }
    return all;
  }();
  return kinds;
}

inline EncoderDecoderConfig decoding_config(const DecoderKind& kind, Index max_length) {
  EncoderDecoderConfig config;
  config.layer.attention.kind = kind.attention;
  config.layer.attention.rotary = kind.rotary;
  config.layer.norm_first = kind.norm_first;
  config.layer.width = 16;
  config.layer.attention.heads = 4;
  config.layer.feed_forward = 12;
  config.positions = kind.positions;
  config.source_vocabulary = config.target_vocabulary = 11;
  config.encoder_layers = 1;
  config.decoder_layers = 2;
  config.max_length = max_length;
  return config;
}

/// An untrained model whose next token depends on everything before it. `end_bias` decides the lengths of
/// outputs.
inline EncoderDecoder decoding_model(const DecoderKind& kind, Index max_length, DType type, double end_bias) {
  auto model = fresh_module<EncoderDecoder>(decoding_config(kind, max_length));
  model.to(type);
  randomise(model, 5);
  const Tensor bias = parameter_of(model, "head.bias");
  if (type == DType::f64) bias.data<double>()[kEndId] = end_bias;
  if (type == DType::f32) bias.data<float>()[kEndId] = static_cast<float>(end_bias);
  model.eval();
  return model;
}

inline std::vector<TokenIds> decoding_sources(const std::vector<std::size_t>& lengths, std::uint64_t seed) {
  Generator random(test_seed(seed));
  std::vector<TokenIds> sources;
  for (const std::size_t length : lengths) {
    TokenIds source(length);
    for (std::int32_t& token : source) token = static_cast<std::int32_t>(4 + random.below(7));
    sources.push_back(source);
  }
  return sources;
}

/// Five sources of different lengths, encoded, and their mask.
inline std::pair<Tensor, Tensor> encoded_sources(const EncoderDecoder& model) {
  const std::vector<Index> lengths = {7, 2, 5, 7, 1};
  Generator random(test_seed(9));
  const Tensor ids = Tensor::full({5, 7}, 0, DType::i32, Device::cpu());
  for (Index i = 0; i < 35; ++i)
    if (i % 7 < lengths[static_cast<std::size_t>(i / 7)])
      ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(4 + random.below(7));
  const Tensor mask = real_tokens(lengths, 7).to(model.device());
  return {model.encode(ids.to(model.device()), mask), mask};
}

}  // namespace tapeformer
