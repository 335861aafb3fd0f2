#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/nn/language_steps.h>

#include <numeric>

namespace tapeformer {

LanguageSteps::LanguageSteps(const DecoderOnly& model, const std::optional<CacheConfig>& cache, bool graphs)
    : model_(model), graphs_(graphs) {
  if (cache) caches_.emplace(model.start(*cache));
}

void LanguageSteps::check_ids(const char* op, const TokenIds& tokens) const {
  const Index vocabulary = model_.config().vocabulary;
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    throw ShapeError(std::string("[") + op + "] tokens must be within the vocabulary of " +
                     std::to_string(vocabulary) + "; got " + std::to_string(token));
  }
}

Tensor LanguageSteps::prompt(const TokenIds& tokens) {
  if (!rows_.empty()) throw Error("[prompt] there is one already; try another LanguageSteps, or step()");
  if (tokens.empty()) throw ShapeError("[prompt] there must be a token; got none; try one that begins texts");
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
  if (tokens.size() != rows_.size() || rows_.empty()) {
    throw ShapeError("[step] there must be one token a row, and a row; got " + std::to_string(tokens.size()) +
                     " for " + std::to_string(rows_.size()) + " rows" +
                     (prompt_ == 0 ? "; try prompt() first" : ""));
  }
  check_ids("step", tokens);
  for (std::size_t row = 0; row < tokens.size(); ++row) rows_[row].push_back(tokens[row]);
  try {
    return next_logits();
  } catch (...) {
    for (TokenIds& row : rows_) row.pop_back();
    forget();
    throw;
  }
}

void LanguageSteps::forget() {
  if (caches_) caches_->clear();
}

bool LanguageSteps::has_places(Index tokens) {
  const Index limit = model_.config().rotations.max_positions;
  return caches_ && model_.device().is_cuda() && (limit == 0 || tokens <= limit) && caches_->reserve(tokens);
}

Tensor LanguageSteps::last_logits(const Tensor& states) const {
  const Tensor last = slice(states, 1, states.size(1) - 1, 1);
  return model_.logits(reshape(last, {last.size(0), -1}));
}

Tensor LanguageSteps::next_logits() {
  const RecordingPause pause;
  const DecoderOnlyConfig& config = model_.config();
  const auto length = static_cast<Index>(rows_.front().size());
  const Index start = config.positions == PositionKind::rotary ? 0 : context_start(length, config.context);
  if (caches_ && start != start_) {  // every token's position is another
    has_places(1) ? caches_->set_length(0) : caches_->clear();
  }
  start_ = start;
  const Index first = start + (caches_ ? caches_->length() : 0);
  Tensor prefix_lengths;  // those that go on from a prompt see all of it anyway
  if (config.prefix && first < prompt_) {
    prefix_lengths = Tensor::full({static_cast<Index>(rows_.size())}, static_cast<double>(prompt_ - start),
                                  DType::i32, model_.device());
  }
  const Tensor ids = token_columns(rows_, first).to(model_.device());
  const bool is_step = ids.size(1) == 1 && first > start && !prefix_lengths.defined();
  if (is_step && has_places(first - start + 1)) return replayed(ids);
  return last_logits(caches_ ? model_.states(ids, *caches_, prefix_lengths)
                             : model_.states(ids, prefix_lengths));
}

Tensor LanguageSteps::replayed(const Tensor& ids) {
  const Index length = caches_->length();
  const void* held = caches_->layer(0).keys().state()->storage->data;
  if (!replay_ || held != held_) {  // graphs of before keep what the caches held then
    replay_.emplace(const_cast<DecoderOnly&>(model_), graphs_ ? Replay::kMostGraphs : 0);  // is not changed
    held_ = held;
  }
  const Tensor at = Tensor::full({ids.size(0), 1}, static_cast<double>(length), DType::i32, model_.device());
  const Tensor logits = replay_->run("step", {ids, at}, [&](const std::vector<Tensor>& x) {
    caches_->set_length(length);  // a capture that was given up has been here
    const LayerCaches::Step step(*caches_, x[1]);
    return last_logits(model_.states(x[0], *caches_));
  });
  caches_->set_length(length + 1);
  return logits;
}

void LanguageSteps::reorder(const std::vector<std::int32_t>& rows) {
  for (const std::int32_t row : rows) {
    if (row >= 0 && static_cast<std::size_t>(row) < rows_.size()) continue;
    throw ShapeError("[reorder] rows must be there; got row " + std::to_string(row) + " of " +
                     std::to_string(rows_.size()));
  }
  std::vector<TokenIds> next;
  next.reserve(rows.size());
  for (const std::int32_t row : rows) next.push_back(rows_[static_cast<std::size_t>(row)]);
  if (caches_) caches_->reorder(rows);
  rows_ = std::move(next);
}

}  // namespace tapeformer
