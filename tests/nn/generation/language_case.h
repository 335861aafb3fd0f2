#pragma once

#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/native_sparse.h>

#include <string>
#include <vector>

namespace tapeformer {

using TokenIds = std::vector<std::int32_t>;

/// A kind of language model for generation; with a prefix it also has short convolutions.
struct LanguageKind {
  std::string attention;
  PositionKind positions;
  bool prefix = false;
  std::string pattern = "";
  Index window = 0;
  Index experts = 0;
  Index moba_block = 0;
  Index index_top_k = 0;
  std::string name() const {
    return attention + pattern + ", " + name_of(positions) + (prefix ? ", prefix" : "") +
           (window > 0 ? ", window" : "") + (experts > 0 ? ", experts" : "") +
           (moba_block > 0 ? ", blocks" : "") + (index_top_k > 0 ? ", indexer" : "");
  }
};

/// Each attention with each kind of positions that it takes, causal and with prefix.
inline std::vector<LanguageKind> language_kinds() {
  std::vector<LanguageKind> kinds;
  for (const bool prefix : {false, true}) {
    for (const AttentionKind& kind : attention_kinds()) {
      if (!(kind.can & kCanModelLanguage) || (prefix && (kind.can & kOnlyCausal))) continue;
      for (const PositionKind positions :
           {PositionKind::learned, PositionKind::sinusoidal, PositionKind::rotary, PositionKind::none}) {
        if (positions != PositionKind::rotary || (kind.can & kCanRotate))
          kinds.push_back({kind.name, positions, prefix});
      }
    }
  }
  // Biases by the distance of query and key.
  kinds.push_back({"gqa", PositionKind::alibi});
  kinds.push_back({"mha", PositionKind::buckets});
  // States and keys, with rotary positions or without.
  kinds.push_back({"kda", PositionKind::rotary, false, "DF"});
  kinds.push_back({"gla", PositionKind::learned, false, "FD"});
  kinds.push_back({"gqa", PositionKind::rotary, false, "", 4});
  kinds.push_back({"mha", PositionKind::rotary, false, "", 0, 4});
  kinds.push_back({"gqa", PositionKind::rotary, false, "", 0, 0, 3});
  kinds.push_back({"mla", PositionKind::rotary, false, "", 0, 0, 0, 3});
  return kinds;
}

/// No cache, and one of each kind.
inline const std::optional<CacheConfig> kTextCaches[] = {
    std::nullopt, CacheConfig{CacheKind::contiguous, 0, 16}, CacheConfig{CacheKind::paged, 0, 5}};

constexpr Index kLanguageVocabulary = 13;

inline DecoderOnlyConfig language_config(const LanguageKind& kind, Index context) {
  DecoderOnlyConfig config;
  config.vocabulary = kLanguageVocabulary;
  config.context = context;
  config.layers = 2;
  config.width = 16;
  config.attention.heads = 4;
  config.attention.kind = kind.attention, config.attention_pattern = kind.pattern;
  config.attention = with_small_blocks(config.attention);
  if (kind.moba_block > 0) config.attention.moba_block = kind.moba_block, config.attention.moba_top_k = 2;
  if (kind.index_top_k > 0) config.attention.index_top_k = kind.index_top_k, config.attention.index_heads = 4;
  config.positions = kind.positions;
  config.window = kind.window;
  config.feed_forward = 12;
  config.experts.experts = kind.experts;
  config.prefix = kind.prefix;
  config.short_convolution = kind.prefix ? 3 : 0;
  return config;
}

/// An untrained model whose next token depends on everything before it.
inline DecoderOnly language_model(const DecoderOnlyConfig& config, DType type = DType::f64) {
  auto model = fresh_module<DecoderOnly>(config);
  model.to(type);
  randomise(model, 5);
  model.eval();
  return model;
}

inline TokenIds random_tokens(Index count, std::uint64_t seed) {
  Generator random(test_seed(seed));
  TokenIds tokens(static_cast<std::size_t>(count));
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(kLanguageVocabulary));
  return tokens;
}

/// [1, V]: the model's logits at the last of these tokens, computed at once from the context that it has;
/// `prompt` of the row's first tokens are the prefix where there is one.
inline Tensor whole_logits(const DecoderOnly& model, const TokenIds& row, Index prompt) {
  const DecoderOnlyConfig& config = model.config();
  const auto length = static_cast<Index>(row.size());
  // Half of the context is dropped when it is full, but a prompt fills it.
  Index dropped = 0;
  if (has_table(config.positions))
    while (length - dropped > config.context)
      dropped += length == prompt ? length - config.context : (config.context + 1) / 2;
  const Tensor ids = ids_of(TokenIds(row.begin() + dropped, row.end()), {1, length - dropped});
  Tensor prefix;
  if (config.prefix && prompt > dropped) prefix = ids_of({static_cast<std::int32_t>(prompt - dropped)}, {1});
  const Tensor logits = model(ids, prefix);
  return reshape(slice(logits, 1, length - dropped - 1, 1), {1, config.vocabulary});
}

inline std::int32_t likeliest(const Tensor& logits) {
  Index best = 0;
  for (Index i = 1; i < logits.elements(); ++i)
    if (logits.at(i) > logits.at(best)) best = i;
  return static_cast<std::int32_t>(best);
}

}  // namespace tapeformer
