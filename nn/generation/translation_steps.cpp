#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/generation/translation_steps.h>

namespace tapeformer {

TranslationSteps::TranslationSteps(const EncoderDecoder& model, const Tensor& memory,
                                   const Tensor& memory_mask, const std::optional<CacheConfig>& cache,
                                   bool graphs)
    : CachedSteps(model, model.device(),
                  {model.config().target_vocabulary,
                   has_table(model.config().positions) ? model.config().max_length : 0,
                   model.config().layer.attention.rotations.max_positions},
                  graphs),
      model_(model) {
  rows_.resize(static_cast<std::size_t>(memory.size(0)));
  const bool can_cache = attention_kind(model.config().layer.attention.kind).can & kCanCache;
  if (cache && can_cache) {
    state_.emplace(model.start(memory, memory_mask, *cache));
  } else {
    memory_ = memory;
    memory_mask_ = memory_mask;
  }
}

Tensor TranslationSteps::logits(const Tensor& ids) {
  const Tensor states = state_ ? model_.decode(ids, *state_) : model_.decode(ids, memory_, memory_mask_);
  const Tensor last = slice(states, 1, states.size(1) - 1, 1);
  return model_.logits(reshape(last, {last.size(0), -1}));
}

void TranslationSteps::reorder_kept(const std::vector<std::int32_t>& rows) {
  if (state_) {
    state_->reorder(rows);
  } else {
    memory_ = picked_rows(memory_, rows);
    if (memory_mask_.defined()) memory_mask_ = picked_rows(memory_mask_, rows);
  }
}

}  // namespace tapeformer
