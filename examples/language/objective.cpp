#include <tapeformer/data/hash.h>
#include <tapeformer/examples/language/objective.h>
#include <tapeformer/examples/shared/option_table.h>

#include <algorithm>

namespace tapeformer {
namespace {

constexpr std::uint64_t kPrefixSeed = 0x707265666978;  // of prefix lengths, distinct from the windows'

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

}  // namespace

const std::vector<Objective>& objectives() {
  static const std::vector<Objective> all = {
      {"next", "the next token", false, false, keep_next_tokens},
      {"prefix", "the next token after a prompt that sees itself in both directions", true, false,
       set_prefixes},
      masked_objective()};
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

}  // namespace tapeformer
