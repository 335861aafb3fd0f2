#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tensor.h>
#include <tapeformer/data/token_file.h>

#include <functional>

namespace tapeformer {

/// Tokens and the tokens that follow them.
struct TokenBatch {
  Tensor inputs, targets;  ///< i32 [B, T] each; targets[b, t] is the token behind inputs[b, t]
};

/// How training reads a token file.
enum class WindowOrder {
  random,     ///< windows that start anywhere, drawn with replacement, as nanoGPT does
  sequential  ///< epochs: windows side by side from a start of the epoch's own, in shuffled order
};
const char* name_of(WindowOrder order);
/// Throws: DataError listing the names there are.
WindowOrder window_order(const std::string& name);

/// Windows of `length` tokens for training; a function of (seed, batch number), so that a resumed run goes on
/// with the batches it would have had.
class TokenWindows {
 public:
  /// Throws: DataError if the file holds fewer than length + 1 tokens
  TokenWindows(TokenFile file, Index length, WindowOrder order, std::uint64_t seed);

  /// Batch `number`, counted from 0, of `rows` windows. `rows` is the same in every call of sequential order.
  TokenBatch batch(Index number, Index rows) const;
  /// Windows that lie side by side in the file.
  Index windows() const { return (file_.size() - 1) / length_; }
  const TokenFile& file() const { return file_; }

 private:
  TokenFile file_;
  Index length_;
  WindowOrder order_;
  std::uint64_t seed_;
};

/// Calls `visit` with windows side by side until every token but the first has been a target exactly once: for
/// the exact mean loss. All batches have `rows` x `length` but the last ones, which are smaller.
void for_each_window(const TokenFile& file, Index length, Index rows,
                     const std::function<void(const TokenBatch&)>& visit);

}  // namespace tapeformer
