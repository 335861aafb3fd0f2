#pragma once

#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

/// Ids of tokens, in order.
using TokenIds = std::vector<std::int32_t>;

/// A model as a search sees it: rows of tokens that grow by one token at a time.
class NextTokenModel {
 public:
  virtual ~NextTokenModel() = default;
  /// Appends tokens[i] to row i.
  /// Shapes:  -> logits [R, V] of the next token
  virtual Tensor step(const TokenIds& tokens) = 0;
  /// Makes row i a copy of the former row rows[i]; the number of rows may change.
  virtual void reorder(const std::vector<std::int32_t>& rows) = 0;
};

}  // namespace tapeformer
