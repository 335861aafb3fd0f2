#include <tapeformer/data/hash.h>
#include <tapeformer/examples/language/objective.h>
#include <tapeformer/examples/language/tokenizer.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr std::uint64_t kMaskSeed = 0x6d61736b6564;                // distinct from the windows'
constexpr std::uint64_t kChosen = 15, kMasked = 80, kRandom = 10;  // per cent, the latter two of the chosen

Tensor mask_tokens(const TokenBatch& batch, const ObjectiveDraw& draw) {
  std::int32_t* const inputs = batch.inputs.data<std::int32_t>();
  std::int32_t* const targets = batch.targets.data<std::int32_t>();
  for (Index i = 0; i < batch.inputs.elements(); ++i) {
    const auto row = static_cast<std::uint64_t>(draw.first + i / draw.length);
    const std::uint64_t here =
        mix_bits(mix_bits(draw.seed ^ kMaskSeed, row), static_cast<std::uint64_t>(i % draw.length));
    const bool is_chosen = bounded(mix_bits(here, 0), 100) < kChosen;
    targets[i] = is_chosen ? inputs[i] : -1;
    if (!is_chosen) continue;
    const std::uint64_t share = bounded(mix_bits(here, 1), 100);
    if (share < kMasked)
      inputs[i] = draw.mask;
    else if (share < kMasked + kRandom)
      inputs[i] =
          static_cast<std::int32_t>(bounded(mix_bits(here, 2), static_cast<std::uint64_t>(draw.vocabulary)));
  }
  return {};
}

}  // namespace

Objective masked_objective() {
  return {"masked", "masked tokens of a text that sees itself in both directions (BERT)", false, true,
          mask_tokens};
}

std::int32_t mask_token(const Tokenizer& tokenizer) {
  const std::string name = mask_name(tokenizer);
  return name.empty() ? static_cast<std::int32_t>(tokenizer.vocabulary_size()) : *tokenizer.find(name);
}

Index vocabulary_with_mask(const DecoderOnlyConfig& model, Index vocabulary, const Tokenizer& tokenizer) {
  return model.bidirectional ? std::max<Index>(vocabulary, mask_token(tokenizer) + 1) : vocabulary;
}

}  // namespace tapeformer
