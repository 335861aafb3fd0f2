#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/hash.h>
#include <tapeformer/data/token_windows.h>

#include <algorithm>
#include <utility>

namespace tapeformer {
namespace {

/// Rows of `length` tokens, row r from start(r), and the token after each.
template <class Start>
TokenBatch read_batch(const TokenFile& file, Index rows, Index length, const Start& start) {
  const auto empty = [](const Shape& shape) { return Tensor::empty(shape, DType::i32, Device::cpu()); };
  TokenBatch batch{empty({rows, length}), empty({rows, length})};
  const Tensor window = empty({length + 1});  // from the pool
  const std::int32_t* const ids = window.data<std::int32_t>();
  for (Index row = 0; row < rows; ++row) {
    const Index first = start(row);
    file.read(first, length + 1, window.data<std::int32_t>());
    std::copy(ids, ids + length, batch.inputs.data<std::int32_t>() + row * length);
    std::int32_t* const targets = batch.targets.data<std::int32_t>() + row * length;
    std::copy(ids + 1, ids + length + 1, targets);
    file.ignore_prompts(first + 1, length, targets);
  }
  return batch;
}

/// A random number in [0, size) that is a pure function of (seed, counter).
Index draw(std::uint64_t seed, Index counter, Index size) {
  const std::uint64_t bits = mix_bits(seed, static_cast<std::uint64_t>(counter));
  return static_cast<Index>(bounded(bits, static_cast<std::uint64_t>(size)));
}

}  // namespace

TokenWindows::TokenWindows(TokenFile file, Index length, WindowOrder order, std::uint64_t seed)
    : file_(std::move(file)), length_(length), order_(order), seed_(seed) {
  if (length < 1 || length >= file_.size())
    throw DataError(file_.path(), 0,
                    format("holds {}; a window of {} and the token after it do not fit; try a longer text or "
                           "a shorter context",
                           number_of(file_.size(), "token"), length));
}

Index TokenWindows::windows() const { return std::max<Index>(1, file_.size() / length_ - 1); }

Index TokenWindows::random_start(Index number, Index row) const {
  return draw(mix_bits(seed_, static_cast<std::uint64_t>(number)), row, file_.size() - length_);
}

Index TokenWindows::sequential_start(Index window) const {
  const Index epoch = window / windows(), place = window % windows();
  const std::uint64_t seed = mix_bits(seed_, static_cast<std::uint64_t>(epoch));
  const Index first = draw(seed, 0, file_.size() - windows() * length_);
  return first + shuffled(place, windows(), seed) * length_;
}

TokenBatch TokenWindows::batch(Index number, Index rows, Share share) const {
  return read_batch(file_, share.size(), length_, [&](Index i) {
    const Index row = share.begin + i;
    return order_ == WindowOrder::random ? random_start(number, row) : sequential_start(number * rows + row);
  });
}

void for_each_window(const TokenFile& file, Index length, Index rows,
                     const std::function<void(Index height, const ReadRows& read)>& visit) {
  const Index targets = file.size() - 1;
  if (length < 1 || rows < 1)
    throw DataError(format("[windows] length and rows must be positive; got {} and {}", length, rows));
  if (targets < 1)
    throw DataError(file.path(), 0,
                    format("holds {}: no token has one before it", number_of(file.size(), "token")));
  for (Index first = 0; first < targets;) {
    // Whole windows first, then the rest as a shorter one.
    const Index left = targets - first, width = std::min(length, left), height = std::min(rows, left / width);
    visit(height, [&](Share share) {
      return read_batch(file, share.size(), width,
                        [&](Index i) { return first + (share.begin + i) * width; });
    });
    first += height * width;
  }
}

}  // namespace tapeformer
