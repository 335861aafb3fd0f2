#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/tensor.h>
#include <tapeformer/data/share.h>
#include <tapeformer/data/token_file.h>

#include <functional>

namespace tapeformer {

/// Tokens, and the token that follows each.
struct TokenBatch {
  /// i32 [B, T] each; targets[b, t] is the token after inputs[b, t], or -1 if it does not count.
  Tensor inputs, targets;
};

/// The order in which training reads a token file.
enum class WindowOrder {
  random,     ///< windows that start anywhere, drawn with replacement, as nanoGPT does
  sequential  ///< epochs of adjacent windows in shuffled order; each epoch starts at a random place and skips
              ///< less than two windows at the ends
};
template <>
inline constexpr EnumNames kNames<WindowOrder>{"[windows] the order", {"random", "sequential"}};

/// Windows of `length` tokens for training, as a function of (seed, batch number): a resumed run continues
/// with the batches it would have had. Takes constant memory, whatever the size of the file.
class TokenWindows {
 public:
  /// Throws: DataError if the file holds fewer than length + 1 tokens
  TokenWindows(TokenFile file, Index length, WindowOrder order, std::uint64_t seed);

  /// Batch `number`, counted from 0, of `rows` windows. In sequential order `rows` must be the same in every
  /// call, and a batch may reach from one epoch into the next.
  /// Throws: DataError as TokenFile::read
  TokenBatch batch(Index number, Index rows) const { return batch(number, rows, {0, rows}); }
  /// The rows of that batch that are in `share`, which must not be empty; the others are not read.
  TokenBatch batch(Index number, Index rows, Share share) const;
  /// The number of windows in an epoch: one fewer than fit into the file, so that epochs can start at
  /// different places, but at least one.
  Index windows() const;
  /// The file that it reads.
  const TokenFile& file() const { return file_; }

 private:
  Index random_start(Index number, Index row) const;
  Index sequential_start(Index window) const;

  TokenFile file_;
  Index length_;
  WindowOrder order_;
  std::uint64_t seed_;
};

/// Reads those rows of a batch that are in the share.
using ReadRows = std::function<TokenBatch(Share)>;

/// Calls `visit` for batches of adjacent windows, with the number of rows and a function that reads them.
/// Every token except the first is a target exactly once, as an exact mean loss needs. All batches are
/// `rows` x `length`, except the last ones, which are smaller.
/// Throws:  DataError for no length or rows, or if the file holds fewer than 2 tokens, or as TokenFile::read
void for_each_window(const TokenFile& file, Index length, Index rows,
                     const std::function<void(Index height, const ReadRows& read)>& visit);

}  // namespace tapeformer
