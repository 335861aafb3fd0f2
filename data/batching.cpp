#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/batching.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/share.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

namespace tapeformer {
namespace {

/// Fisher-Yates, with its own random stream.
void shuffle(std::vector<Index>& values, std::uint64_t seed) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[bounded(mix_bits(seed, i), i)]);
  }
}

/// One padded row of `length`: `tokens`, then padding.
void fill_row(std::int32_t* row, Index length, const std::vector<std::int32_t>& tokens,
              std::int32_t padding) {
  std::fill(std::copy(tokens.begin(), tokens.end(), row), row + length, padding);
}

}  // namespace

TranslationBatches::TranslationBatches(std::vector<EncodedPair> pairs, const BatchingConfig& config)
    : pairs_(std::move(pairs)), config_(config) {
  const std::string limits =
      format("{} per batch and {} per sentence", number_of(config.token_budget, "token"), config.max_tokens);
  if (config.token_budget < 1 || config.max_tokens < 1)
    throw DataError("[batching] budget and limit must be positive; got " + limits);
  const Index limit = std::min(config.token_budget, config.max_tokens);
  const auto read = static_cast<Index>(pairs_.size());
  const auto is_empty = [](const EncodedPair& pair) { return pair.source.empty() || pair.target.empty(); };
  const auto too_long = [&](const EncodedPair& pair) {
    const SentenceFrame& frame = config_.frame;
    return std::max(frame.source_length(pair.source.size()), frame.target_length(pair.target.size())) > limit;
  };
  pairs_.erase(std::remove_if(pairs_.begin(), pairs_.end(), is_empty), pairs_.end());
  dropped_empty_ = read - static_cast<Index>(pairs_.size());
  pairs_.erase(std::remove_if(pairs_.begin(), pairs_.end(), too_long), pairs_.end());
  dropped_ = read - dropped_empty_ - static_cast<Index>(pairs_.size());
  if (pairs_.empty())
    throw DataError(
        format("[batching] no usable pairs; got {}, {} over the limit of {} and {} without tokens", read,
               dropped_, limits, dropped_empty_));
  order_.resize(pairs_.size());
  order_epoch(0);
  // Sorted by length, every epoch has the same lengths in the same places: the cuts below fit all of them.
  Index longest_source = 0, longest_target = 0;
  starts_.push_back(0);
  const auto close = [&](Index end) {
    positions_ += (end - starts_.back()) * (longest_source + longest_target);
    starts_.push_back(end);
    longest_source = longest_target = 0;
  };
  for (Index i = 0; i < this->pairs(); ++i) {
    const Index pair = order_[static_cast<std::size_t>(i)], source = source_length(pair),
                target = target_length(pair);
    const Index longest = std::max({longest_source, longest_target, source, target});
    if ((i + 1 - starts_.back()) * longest > config_.token_budget) close(i);
    longest_source = std::max(longest_source, source);
    longest_target = std::max(longest_target, target);
    tokens_ += source + target;
  }
  close(this->pairs());
  order_batches(0);
}

Index TranslationBatches::source_length(Index pair) const {
  return config_.frame.source_length(pairs_[static_cast<std::size_t>(pair)].source.size());
}

Index TranslationBatches::target_length(Index pair) const {
  return config_.frame.target_length(pairs_[static_cast<std::size_t>(pair)].target.size());
}

void TranslationBatches::order_epoch(Index epoch) {
  const std::uint64_t seed = mix_bits(config_.seed, static_cast<std::uint64_t>(epoch));
  // Longest side, sum of both lengths, a random number, the pair: sorting these reads memory in order.
  std::vector<std::tuple<Index, Index, std::uint64_t, Index>> keys;
  keys.reserve(pairs_.size());
  for (Index pair = 0; pair < pairs(); ++pair) {
    const Index source = source_length(pair), target = target_length(pair);
    keys.emplace_back(std::max(source, target), source + target,
                      config_.shuffle ? mix_bits(seed, static_cast<std::uint64_t>(pair)) : 0, pair);
  }
  std::sort(keys.begin(), keys.end());
  std::transform(keys.begin(), keys.end(), order_.begin(), [](const auto& key) { return std::get<3>(key); });
}

void TranslationBatches::order_batches(Index epoch) {
  batch_order_.resize(starts_.size() - 1);
  std::iota(batch_order_.begin(), batch_order_.end(), 0);
  const std::uint64_t seed = mix_bits(config_.seed, static_cast<std::uint64_t>(epoch));
  if (config_.shuffle) shuffle(batch_order_, mix_bits(seed));
}

void TranslationBatches::seek(BatchPosition position) {
  if (position.epoch < 0 || position.index < 0 || position.index >= batches_per_epoch())
    throw DataError(format("[batching] a position must be a batch of an epoch; got epoch {}, batch {} of {}",
                           position.epoch, position.index, batches_per_epoch()));
  if (position.epoch != position_.epoch) {
    order_epoch(position.epoch);
    order_batches(position.epoch);
  }
  position_ = position;
}

TranslationBatch TranslationBatches::next(int rank, int ranks) {
  const auto number = static_cast<std::size_t>(batch_order_[static_cast<std::size_t>(position_.index)]);
  const Share share = share_of(starts_[number + 1] - starts_[number], rank, ranks);
  const bool counts = share.size() > 0;
  const Index first = starts_[number] + (counts ? share.begin : 0), rows = counts ? share.size() : 1;
  const Index* const members = order_.data() + first;
  Index longest_source = 0, longest_target = 0;
  for (Index row = 0; row < rows; ++row) {
    longest_source = std::max(longest_source, source_length(members[row]));
    longest_target = std::max(longest_target, target_length(members[row]));
  }
  const Shape source_shape{rows, longest_source}, target_shape{rows, longest_target};
  const auto empty = [](const Shape& shape, DType type) { return Tensor::empty(shape, type, Device::cpu()); };
  TranslationBatch batch{empty(source_shape, DType::i32), empty(source_shape, DType::boolean),
                         empty(target_shape, DType::i32), empty(target_shape, DType::i32), 0};
  for (Index row = 0; row < rows; ++row) {
    const EncodedPair& pair = pairs_[static_cast<std::size_t>(members[row])];
    const SentenceFrame& frame = config_.frame;
    std::vector<std::int32_t> target = frame.target(pair.target);
    fill_row(batch.source_ids.data<std::int32_t>() + row * longest_source, longest_source,
             frame.source(pair.source), frame.padding);
    bool* const mask = batch.source_mask.data<bool>() + row * longest_source;
    std::fill(mask, mask + longest_source, false);
    std::fill(mask, mask + source_length(members[row]), true);
    std::int32_t* const inputs = batch.target_inputs.data<std::int32_t>() + row * longest_target;
    std::int32_t* const outputs = batch.target_outputs.data<std::int32_t>() + row * longest_target;
    fill_row(outputs, longest_target, counts ? target : std::vector<std::int32_t>(), kIgnored);
    target.insert(target.begin(), frame.begin);
    target.pop_back();
    fill_row(inputs, longest_target, target, frame.padding);
    if (counts) batch.tokens += source_length(members[row]) + target_length(members[row]);
  }
  if (++position_.index == batches_per_epoch()) seek({position_.epoch + 1, 0});
  return batch;
}

}  // namespace tapeformer
