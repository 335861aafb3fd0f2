#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/generation/language_steps.h>

namespace tapeformer {

LanguageSteps::LanguageSteps(const DecoderOnly& model, const std::optional<CacheConfig>& cache, bool graphs)
    : CachedSteps(
          model, model.device(),
          {model.config().vocabulary, has_table(model.config().positions) ? model.config().context : 0,
           model.config().attention.rotations.max_positions},
          graphs),
      model_(model) {
  model.config().require_causal();
  bool can_cache = true;
  for_each_attention(model.config(), [&](const AttentionConfig& attention) {
    can_cache = can_cache && (attention_kind(attention.kind).can & kCanCache);
  });
  if (cache && can_cache) caches_.emplace(model.start(*cache));
}

Tensor LanguageSteps::prompt(const TokenIds& tokens) {
  if (!rows_.empty()) throw Error("[prompt] the prompt is set already; try another LanguageSteps, or step()");
  if (tokens.empty())
    throw ShapeError("[prompt] the prompt must have a token; got none; try one that begins texts");
  check_ids("prompt", tokens);
  rows_ = {tokens};
  prompt_ = static_cast<Index>(tokens.size());
  try {
    return next_logits();
  } catch (...) {
    rows_.clear();
    forget();
    throw;
  }
}

Tensor LanguageSteps::step(const TokenIds& tokens) {
  if (prompt_ == 0) throw ShapeError("[step] there is no row yet to extend; try prompt() first");
  return CachedSteps::step(tokens);
}

Tensor LanguageSteps::logits(const Tensor& ids) {
  const Index first = start() + (caches_ ? caches_->length() : 0);
  Tensor prefix_lengths;  // not needed after the prompt: later tokens see all of it anyway
  if (model_.config().prefix && first < prompt_)
    prefix_lengths =
        Tensor::full({ids.size(0)}, static_cast<double>(prompt_ - start()), DType::i32, model_.device());
  const Tensor states =
      caches_ ? model_.states(ids, *caches_, prefix_lengths) : model_.states(ids, prefix_lengths);
  const Tensor last = slice(states, 1, states.size(1) - 1, 1);
  return model_.logits(reshape(last, {last.size(0), -1}));
}

void LanguageSteps::reorder_kept(const std::vector<std::int32_t>& rows) {
  if (caches_) caches_->reorder(rows);
}

}  // namespace tapeformer
