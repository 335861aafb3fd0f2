#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/tests/nn/generation/language_case.h>
#include <tapeformer/tests/nn/transformer/config_variants.h>
#include <tapeformer/tests/nn/transformer/decoder_only_case.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <cmath>
#include <set>

// No bit of any model's logits may depend on a later token; experts, whose products have other rows then, may
// round differently.
using namespace tapeformer;

namespace {

/// Logits [B, T, V] of ids i32 [B, T].
using Logits = std::function<Tensor(const Tensor& ids)>;

constexpr Index kRows = 2, kLength = 6;
const std::string kTooShort = "rotary_max_positions=2";  // than the sequences
constexpr std::int32_t kPrefixes[kRows] = {2, 1};

Tensor tokens(Index length) { return random_ids({kRows, length}, kLanguageVocabulary, 3); }

/// Another token at a position of the first row.
Tensor with_other_token(const Tensor& ids, Index at) {
  const Tensor changed = ids.clone();
  std::int32_t& token = changed.data<std::int32_t>()[at];
  token = token == 0 ? 1 : token - 1;
  return changed;
}

/// Changes the tokens `at` of the first row one after another, and names logits that wrongly change or stay:
/// "" if all is well. With `prefix`, the row's first tokens may see each other.
std::string leaks(const Logits& logits, const Tensor& ids, const std::vector<Index>& at, Index prefix = 0,
                  double rounding = 0) {
  const Tensor before = logits(ids);
  const Index length = ids.size(1);
  std::string found;
  for (const Index t : at) {
    const Tensor after = logits(with_other_token(ids, t));
    const auto is_moved = [&](Index row, Index s) {
      const Index count = before.size(-1), first = (row * length + s) * count;
      for (Index i = first; i < first + count; ++i)
        if (!(std::abs(before.at(i) - after.at(i)) <= rounding)) return true;
      return false;
    };
    for (Index s = 0; s < length; ++s) {
      const bool may_move = s >= t || t < prefix;
      if (!may_move && is_moved(0, s)) found += std::to_string(t) + " moves " + std::to_string(s) + "; ";
      if (is_moved(1, s)) found += std::to_string(t) + " moves another row; ";
    }
    if (!is_moved(0, t)) found += std::to_string(t) + " does not move its own; ";
  }
  return found;
}

/// Every token from `first` on, or every second.
std::vector<Index> places(Index first, Index step) {
  std::vector<Index> chosen;
  for (Index t = first; t < kLength; t += step) chosen.push_back(t);
  return chosen;
}

Tensor prefix_lengths(const DecoderOnlyConfig& config) {
  return config.prefix ? ids_of({kPrefixes[0], kPrefixes[1]}, {kRows}) : Tensor();
}

double rounding_of(const DecoderOnlyConfig& config) { return config.experts.experts > 0 ? 1e-12 : 0; }

Index prefix_of(const DecoderOnlyConfig& config) { return config.prefix ? kPrefixes[0] : 0; }

std::string leaks(const DecoderOnly& model, const Tensor& ids, const std::vector<Index>& at) {
  const Logits logits = [&](const Tensor& given) { return model(given, prefix_lengths(model.config())); };
  return leaks(logits, ids, at, prefix_of(model.config()), rounding_of(model.config()));
}

/// Calls step(first, count) for portions of two, three and one token, and joins what it returns.
template <class Step>
Tensor in_portions(const Step& step) {
  return concat({step(0, 2), step(2, 3), step(5, 1)}, 1);
}

/// With a cache, in portions: later tokens of a portion are already there.
std::string cached_leaks(const DecoderOnly& model, CacheKind cache, const std::vector<Index>& at) {
  const Logits logits = [&](const Tensor& ids) {
    LayerCaches caches = model.start({cache, 0, 3});
    return model.logits(in_portions([&](Index first, Index count) {
      const Tensor prefix = first == 0 ? prefix_lengths(model.config()) : Tensor();
      return model.states(columns(ids, first, count), caches, prefix);
    }));
  };
  return leaks(logits, tokens(kLength), at, prefix_of(model.config()), rounding_of(model.config()));
}

/// Two layers, so that a leak of one would spread.
EncoderDecoderConfig translation_config(const std::string& kind) {
  EncoderDecoderConfig config;
  config.layer.width = 12;
  config.layer.attention.kind = kind;
  config.layer.attention.heads = 2;
  config.layer.feed_forward = 7;
  config.source_vocabulary = config.target_vocabulary = kLanguageVocabulary;
  config.encoder_layers = 1, config.decoder_layers = 2;
  config.max_length = kLength;
  return config;
}

EncoderDecoder translator(const EncoderDecoderConfig& config) {
  EncoderDecoder model = random_module<EncoderDecoder>(config);
  model.eval();
  return model;
}

std::string decoder_leaks(const EncoderDecoder& model) {
  const Tensor memory = model.encode(tokens(4), real_tokens({3, 4}, 4));
  const Logits logits = [&](const Tensor& target) {
    return model.logits(model.decode(target, memory, real_tokens({3, 4}, 4)));
  };
  return leaks(logits, tokens(kLength), places(0, 1));
}

std::string cached_decoder_leaks(const EncoderDecoder& model, CacheKind cache) {
  const Tensor memory = model.encode(tokens(4), real_tokens({3, 4}, 4));
  const Logits logits = [&](const Tensor& target) {
    DecoderState state = model.start(memory, real_tokens({3, 4}, 4), {cache, 0, 3});
    return model.logits(in_portions(
        [&](Index first, Index count) { return model.decode(columns(target, first, count), state); }));
  };
  return leaks(logits, tokens(kLength), places(0, 1));
}

/// Tries a field where it is first, and a third of the other variants, which the seed chooses; all where all
/// cases are tried.
class Choice {
 public:
  bool operator()(const std::string& variant) {
    const bool is_new = fields.insert(variant.substr(0, variant.find('='))).second;
    return is_new || variant.empty() || turn_++ % 3 < static_cast<std::uint64_t>(random_cases(3));
  }
  std::set<std::string> fields;

 private:
  std::uint64_t turn_ = test_seed(1);
};

bool can_cache(const std::string& kind) { return attention_kind(kind).can & kCanCache; }

}  // namespace

TEST_CASE_FIXTURE(SingleThread, "a language model of any kind, positions and options sees no later token") {
  Choice is_chosen;
  Index turn = 0;  // models change the first, third and fifth token, or the others
  for (const LanguageKind& kind : language_kinds()) {
    for (const auto& [name, config] : variants_of(language_config(kind, kLength))) {
      if (name == kTooShort || config.bidirectional || !is_chosen(name)) continue;
      INFO(kind.name(), " ", name);
      CHECK(leaks(language_model(config), tokens(kLength), places(turn++ % 2, 2)) == "");
    }
  }
  for (const char* const field :
       {"", "heads", "groups", "latent_width", "qk_norm", "positions", "norm", "gated", "tie_head",
        "short_convolution", "logit_softcap", "window", "window_rotary_base", "prefix"})
    CHECK(is_chosen.fields.count(field) == 1);
}

TEST_CASE_FIXTURE(SingleThread, "with caches, in portions, a language model sees no later token") {
  Choice is_chosen;
  Index turn = 0;
  for (const LanguageKind& kind : language_kinds()) {
    if (!can_cache(kind.attention)) continue;
    for (const auto& [name, config] : variants_of(language_config(kind, kLength))) {
      if (name == kTooShort || config.bidirectional || !can_cache(config.attention.kind) ||
          !can_cache(config.full_attention) || !is_chosen(name))
        continue;
      INFO(kind.name(), " ", name);
      const DecoderOnly model = language_model(config);
      const std::vector<Index> at = places(turn++ % 2, 2);
      CHECK(cached_leaks(model, CacheKind::contiguous, at) == "");
      if (name.empty()) CHECK(cached_leaks(model, CacheKind::paged, at) == "");
    }
  }
}

TEST_CASE_FIXTURE(SingleThread, "in f32, over the kernels' tiles, a language model sees no later token") {
  constexpr Index kLong = 67;
  for (const LanguageKind& kind : language_kinds()) {
    if (kind.experts > 0) continue;  // rounding might change a choice
    INFO(kind.name());
    const DecoderOnly model = language_model(language_config(kind, kLong), DType::f32);
    CHECK(leaks(model, tokens(kLong), {0, 1, 31, 32, 33, 63, 64, 65, 66}) == "");
  }
}

TEST_CASE("the decoder of a translation model of any kind and options sees no later token") {
  const SingleThread guard;
  for (const AttentionKind& kind : attention_kinds()) {
    if (kind.can & kOnlyCausal) continue;  // encoders attend in both directions
    for (const auto& [name, config] : variants_of(translation_config(kind.name))) {
      if (name == kTooShort) continue;
      INFO(kind.name, " ", name);
      const EncoderDecoder model = translator(config);
      CHECK(decoder_leaks(model) == "");
      if (!can_cache(config.layer.attention.kind)) continue;
      CHECK(cached_decoder_leaks(model, CacheKind::contiguous) == "");
      if (name.empty()) CHECK(cached_decoder_leaks(model, CacheKind::paged) == "");
    }
  }
}
