#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/nn/next_token_model.h>
#include <tapeformer/nn/picked_rows.h>

#include <algorithm>

namespace tapeformer {

Tensor token_columns(const std::vector<TokenIds>& rows, Index first) {
  const auto length = static_cast<Index>(rows.front().size()) - first;
  const Tensor ids = Tensor::empty({static_cast<Index>(rows.size()), length}, DType::i32, Device::cpu());
  auto* to = ids.data<std::int32_t>();
  for (const TokenIds& row : rows) to = std::copy(row.begin() + first, row.end(), to);
  return ids;
}

TranslationSteps::TranslationSteps(const EncoderDecoder& model, const Tensor& memory,
                                   const Tensor& memory_mask, const std::optional<CacheConfig>& cache)
    : model_(model), rows_(static_cast<std::size_t>(memory.size(0))) {
  if (cache) {
    state_.emplace(model.start(memory, memory_mask, *cache));
  } else {
    memory_ = memory;
    memory_mask_ = memory_mask;
  }
}

Tensor TranslationSteps::step(const TokenIds& tokens) {
  if (tokens.size() != rows_.size() || rows_.empty()) {
    throw ShapeError("[step] there must be one token a row, and a row; got " + std::to_string(tokens.size()) +
                     " for " + std::to_string(rows_.size()) + " rows");
  }
  const RecordingPause pause;
  for (std::size_t row = 0; row < tokens.size(); ++row) rows_[row].push_back(tokens[row]);
  const EncoderDecoderConfig& config = model_.config();
  const Index start = config.positions == PositionKind::rotary
                          ? 0
                          : context_start(static_cast<Index>(rows_.front().size()), config.max_length);
  if (state_ && start != start_) state_->forget_tokens();  // every token's position is another
  start_ = start;
  const Tensor ids = token_columns(rows_, start + (state_ ? state_->length() : 0)).to(model_.device());
  const Tensor states = state_ ? model_.decode(ids, *state_) : model_.decode(ids, memory_, memory_mask_);
  const Tensor last = slice(states, 1, states.size(1) - 1, 1);
  return reshape(model_.logits(last), {last.size(0), -1});
}

void TranslationSteps::reorder(const std::vector<std::int32_t>& rows) {
  std::vector<TokenIds> next;
  next.reserve(rows.size());
  for (const std::int32_t row : rows) next.push_back(rows_.at(static_cast<std::size_t>(row)));
  rows_ = std::move(next);
  if (state_) {
    state_->reorder(rows);
  } else {
    memory_ = picked_rows(memory_, rows);
    if (memory_mask_.defined()) memory_mask_ = picked_rows(memory_mask_, rows);
  }
}

}  // namespace tapeformer
