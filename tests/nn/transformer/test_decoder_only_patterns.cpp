#include <tapeformer/tests/nn/generation/language_case.h>
#include <tapeformer/tests/nn/transformer/config_variants.h>
#include <tapeformer/tests/nn/transformer/decoder_only_case.h>
#include <tapeformer/tests/reference/random_cases.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <cmath>

// Two kinds of attention in one model, with every option.
using namespace tapeformer;

namespace {

constexpr Index kTextLength = 6;

DecoderOnlyConfig pattern_config(const std::string& kind, const std::string& full) {
  DecoderOnlyConfig config = language_config({kind, PositionKind::rotary, false, "DF"}, kTextLength);
  config.full_attention = full, config.layers = 3;
  return config;
}

/// Checks a step of training, and caches in portions against all tokens at once: "" if all is well.
std::string faults(const DecoderOnlyConfig& config, const Tensor& ids) {
  DecoderOnly model = language_model(config);
  const Tensor prefix = config.prefix ? ids_of({2, 3}, {2}) : Tensor();
  const Tensor whole = model.states(ids, prefix);
  std::string found;
  for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
    LayerCaches caches = model.start({kind, 0, 4});
    TensorList parts{model.states(columns(ids, 0, 4), caches, prefix)};
    for (Index t = 4; t < kTextLength; ++t) parts.push_back(model.states(columns(ids, t, 1), caches));
    if (!(relative_error(concat(parts, 1), whole) < 1e-10)) found += "another output with a cache; ";
  }
  model.train();
  Tape tape;
  const Tensor loss = model.loss(ids, ids, prefix);
  tape.backward(loss);
  for (auto& [name, parameter] : model.named_parameters()) {
    if (parameter.trainable() && !parameter.gradient().defined()) found += "no gradient of " + name + "; ";
  }
  if (!std::isfinite(loss.item())) found += "no loss; ";
  return found;
}

/// Whether a model with rotary positions and caches can have it.
bool is_fit(const AttentionKind& kind) {
  return (kind.can & kCanModelLanguage) && (kind.can & kCanCache) && (kind.can & (kCanRotate | kHasState));
}

std::string pattern_refusal(const std::function<void(DecoderOnlyConfig&)>& change) {
  DecoderOnlyConfig config = pattern_config("mha", "gqa");
  change(config);
  return message_of<Error>([&] { config.check(); });
}

}  // namespace

TEST_CASE("two kinds with any option train and agree with their caches, or are refused") {
  const SingleThread guard;
  const Tensor ids = ids_of(random_tokens(2 * kTextLength, 3), {2, kTextLength});
  Generator random(test_seed(4));
  // Minutes in an emulated GPU.
  const Index one_in = default_device().is_cuda() ? 100 : is_sanitized() ? 40 : random_cases(5) == 5 ? 5 : 10;
  const auto is_chosen = [&] { return random.below(one_in) < random_cases(5); };
  std::size_t pair = 0;
  for (const AttentionKind& kind : attention_kinds()) {
    for (const AttentionKind& full : attention_kinds()) {
      if (!is_fit(kind) || !is_fit(full) || !is_tried(pair++ / 3)) continue;
      for (const auto& variant : variants_of(pattern_config(kind.name, full.name), is_chosen)) {
        if (variant.name.find("rotary_max_positions") == 0) continue;  // fewer than the sequences have
        if (variant.config.bidirectional) continue;                    // it has no cache
        CAPTURE(kind.name + ", " + full.name + ": " + variant.name);
        std::string found;
        CHECK(message_of<Error>([&] { found = faults(variant.config, ids); }) == "nothing was thrown");
        CHECK(found == "");
      }
    }
  }
}

TEST_CASE("layers read the values and keys of layers with as many heads of them alone") {
  const auto message = [](const std::string& option, const std::string& given, const std::string& own) {
    return "[decoder_only] " + option +
           " needs layers with the same number of heads of keys and values; got attention=mha, "
           "full_attention=gqa, " +
           given + " in layer 0, " + own + " in layer 1; try one kind of attention";
  };
  CHECK(pattern_refusal([](auto&) {}) == "nothing was thrown");
  CHECK(pattern_refusal([](auto& c) { c.value_residual = true; }) == message("value_residual", "4", "2"));
  CHECK(pattern_refusal([](auto& c) { c.kv_sharing = 2; }) == message("kv_sharing", "4", "2"));
  CHECK(pattern_refusal([](auto& c) { c.value_residual = true, c.layers = 1; }) == "nothing was thrown");
  CHECK(pattern_refusal([](auto& c) { c.value_residual = true, c.attention_pattern = "DDDDDDDDF"; }) ==
        "nothing was thrown");
  CHECK(pattern_refusal([](auto& c) { c.kv_sharing = 2, c.attention_pattern = "DDFF", c.layers = 8; }) ==
        "nothing was thrown");
  CHECK(pattern_refusal([](auto& c) { c.kv_sharing = 2, c.attention_pattern = "DDF", c.layers = 8; }) !=
        "nothing was thrown");
  CHECK(pattern_refusal([](auto& c) {
          c.value_residual = true, c.attention.kind = "mqa", c.attention.heads = 2;
        }) == "nothing was thrown");  // gqa has one group of two heads
}
