#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/generation/cached_steps.h>
#include <tapeformer/nn/positions.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// The rows' tokens from `first` on, i32 [R, T] on the CPU.
Tensor token_columns(const std::vector<TokenIds>& rows, Index first) {
  const auto length = static_cast<Index>(rows.front().size()) - first;
  const Tensor ids = Tensor::empty({static_cast<Index>(rows.size()), length}, DType::i32, Device::cpu());
  auto* to = ids.data<std::int32_t>();
  for (const TokenIds& row : rows) to = std::copy(row.begin() + first, row.end(), to);
  return ids;
}

}  // namespace

CachedSteps::CachedSteps(const Module& model, Device device, const Limits& limits, bool graphs)
    : model_(model), device_(device), limits_(limits), graphs_(graphs) {}

void CachedSteps::check_ids(const char* op, const TokenIds& tokens) const {
  for (const std::int32_t token : tokens) {
    if (token >= 0 && token < limits_.vocabulary) continue;
    throw ShapeError(
        format("[{}] tokens must be within the vocabulary of {}; got {}", op, limits_.vocabulary, token));
  }
}

Tensor CachedSteps::step(const TokenIds& tokens) {
  if (tokens.size() != rows_.size() || rows_.empty())
    throw ShapeError(format("[step] there must be at least one row, and one token per row; got {} for {}",
                            tokens.size(), number_of(rows_.size(), "row")));
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

void CachedSteps::reorder(const std::vector<std::int32_t>& rows) {
  for (const std::int32_t row : rows) {
    if (row >= 0 && static_cast<std::size_t>(row) < rows_.size()) continue;
    throw ShapeError(format("[reorder] rows must exist; got row {} of {}", row, rows_.size()));
  }
  std::vector<TokenIds> next;
  next.reserve(rows.size());
  for (const std::int32_t row : rows) next.push_back(rows_[static_cast<std::size_t>(row)]);
  try {
    reorder_kept(rows);
  } catch (...) {
    forget();  // of the layers, only the first may have their new order
    throw;
  }
  if (next.size() != rows_.size()) held_.clear();  // all caches move: see forget()
  rows_ = std::move(next);
}

void CachedSteps::forget() {
  if (LayerCaches* held = caches()) held->clear();
  held_.clear();  // the caches may return to the same addresses with another room
}

bool CachedSteps::has_places(Index tokens) {
  return device_.is_cuda() && (limits_.max_positions == 0 || tokens <= limits_.max_positions) &&
         caches()->reserve(tokens);
}

Tensor CachedSteps::next_logits() {
  const NoGradGuard pause;
  LayerCaches* held = caches();
  const auto length = static_cast<Index>(rows_.front().size());
  const Index start = limits_.context == 0 ? 0
                      : length == prompt_  ? std::max<Index>(0, length - limits_.context)
                                           : context_start(length, limits_.context);
  if (held != nullptr && start != start_) {  // the position of every token changes
    has_places(1) ? held->set_length(0) : held->clear();
  }
  start_ = start;
  const Index seen = held != nullptr ? held->length() : 0;
  const Tensor ids = token_columns(rows_, start + seen).to(device_);
  return seen > 0 && ids.size(1) == 1 && has_places(seen + 1) ? replayed(ids) : logits(ids);
}

Tensor CachedSteps::replayed(const Tensor& ids) {
  LayerCaches& held = *caches();
  const Index length = held.length();
  const std::vector<const void*> places = held.memory();
  if (!replay_ || places != held_) {  // older graphs write to memory that the caches have left
    replay_.emplace(const_cast<Module&>(model_).state(),
                    graphs_ ? CudaGraphCache::kMostGraphs : 0);  // steps do not change it
    held_ = places;
  }
  const Tensor at = Tensor::full({ids.size(0), 1}, static_cast<double>(length), DType::i32, device_);
  const Tensor result = replay_->run("step", {ids, at}, [&](const std::vector<Tensor>& x) {
    held.set_length(length);  // an abandoned capture may have moved it
    const LayerCaches::Step step(held, x[1]);
    return logits(x[0]);
  });
  held.set_length(length + 1);
  return result;
}

}  // namespace tapeformer
