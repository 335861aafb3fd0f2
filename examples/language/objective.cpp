#include <tapeformer/data/hash.h>
#include <tapeformer/examples/language/objective.h>
#include <tapeformer/examples/language/tokenizer.h>
#include <tapeformer/examples/shared/option_table.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr std::uint64_t kPrefixSeed = 0x707265666978;  // of prefix lengths, distinct from the windows'
constexpr std::uint64_t kMaskSeed = 0x6d61736b6564;    // of masks, likewise
constexpr std::uint64_t kChosen = 15, kMasked = 80, kRandom = 10;  // per cent; the latter two of the chosen

Tensor keep_next_tokens(const TokenBatch&, const ObjectiveDraw&) { return {}; }

Tensor set_prefixes(const TokenBatch& batch, const ObjectiveDraw& draw) {
  const Index rows = batch.inputs.size(0), length = batch.inputs.size(1);
  const Tensor lengths = Tensor::empty({rows}, DType::i32, Device::cpu());
  for (Index row = 0; row < rows; ++row) {
    const auto place = static_cast<std::uint64_t>(draw.first + row);
    const auto choices = static_cast<std::uint64_t>(std::max<Index>(1, length - 1));
    const auto prefix = static_cast<Index>(1 + bounded(mix_bits(draw.seed ^ kPrefixSeed, place), choices));
    lengths.data<std::int32_t>()[row] = static_cast<std::int32_t>(prefix);
    // The last token of the prompt predicts the first one after it.
    std::fill_n(batch.targets.data<std::int32_t>() + row * length, prefix - 1, -1);
  }
  return lengths;
}

/// 15 % of the tokens are targets, at their own places: of these 80 % become the mask token, 10 % a random
/// one, and 10 % stay. The choices are a function of the seed, the row's number and the place in the row.
/// Source:  Devlin et al. 2019, arXiv:1810.04805, section 3.1
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

const std::vector<Objective>& objectives() {
  static const std::vector<Objective> all = {
      {"next", "the next token", false, false, keep_next_tokens},
      {"prefix", "the next token after a prompt that sees itself in both directions", true, false,
       set_prefixes},
      {"masked", "masked tokens of a text that sees itself in both directions (BERT)", false, true,
       mask_tokens}};
  return all;
}

const Objective& objective_of(const DecoderOnlyConfig& model) {
  return *std::find_if(objectives().begin(), objectives().end(), [&](const Objective& objective) {
    return objective.prefix == model.prefix && objective.bidirectional == model.bidirectional;
  });
}

void set_objective(DecoderOnlyConfig& model, const std::string& name) {
  const Objective& objective = element_named(objectives(), name, "the objective");
  model.prefix = objective.prefix, model.bidirectional = objective.bidirectional;
}

std::int32_t mask_token(const Tokenizer& tokenizer) {
  const std::string name = mask_name(tokenizer);
  return name.empty() ? static_cast<std::int32_t>(tokenizer.vocabulary_size()) : *tokenizer.find(name);
}

Index vocabulary_with_mask(const DecoderOnlyConfig& model, Index vocabulary, const Tokenizer& tokenizer) {
  return model.bidirectional ? std::max<Index>(vocabulary, mask_token(tokenizer) + 1) : vocabulary;
}

}  // namespace tapeformer
