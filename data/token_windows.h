#pragma once

#include <tapeformer/autograd/tensor.h>
#include <tapeformer/data/token_file.h>

#include <functional>
#include <string>

namespace tapeformer {

/// Tokens and the tokens that follow them.
struct TokenBatch {
  Tensor inputs, targets;  ///< i32 [B, T] each; targets[b, t] is the token behind inputs[b, t]
};

/// How training reads a token file.
enum class WindowOrder {
  random,     ///< windows that start anywhere, drawn with replacement, as nanoGPT does
  sequential  ///< epochs: windows side by side from a start of the epoch's own, in shuffled order; what an
              ///< epoch leaves out at the two ends, less than two windows, comes in others
};
const char* name_of(WindowOrder order);
/// Throws: DataError listing the names there are.
WindowOrder window_order(const std::string& name);

/// Windows of `length` tokens for training; a function of (seed, batch number), so that a resumed run goes on
/// with the batches it would have had. Takes constant memory, whatever the size of the file.
class TokenWindows {
 public:
  /// Throws: DataError if the file holds fewer than length + 1 tokens
  TokenWindows(TokenFile file, Index length, WindowOrder order, std::uint64_t seed);

  /// Batch `number`, counted from 0, of `rows` windows. `rows` is the same in every call of sequential order,
  /// where a batch may reach from one epoch into the next.
  /// Throws: DataError if number < 0 or rows < 1, or as TokenFile::read
  TokenBatch batch(Index number, Index rows) const;
  /// The windows of an epoch: one fewer than lie side by side in the file, so that an epoch can start at
  /// `length` places and more; but at least one.
  Index windows() const;
  const TokenFile& file() const { return file_; }

 private:
  Index random_start(Index number, Index row) const;
  Index sequential_start(Index window) const;

  TokenFile file_;
  Index length_;
  WindowOrder order_;
  std::uint64_t seed_;
};

/// Calls `visit` with windows side by side until every token but the first has been a target exactly once:
/// for the exact mean loss. All batches have `rows` x `length` but the last ones, which are smaller.
/// Throws:  DataError if the file holds fewer than 2 tokens, or as TokenFile::read
void for_each_window(const TokenFile& file, Index length, Index rows,
                     const std::function<void(const TokenBatch&)>& visit);

}  // namespace tapeformer
