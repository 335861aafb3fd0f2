#pragma once

#include <tapeformer/autograd/tensor.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

using TokenIds = std::vector<std::int32_t>;

/// A model as a search sees it: rows of tokens that go on one at a time.
class NextTokenModel {
 public:
  virtual ~NextTokenModel() = default;
  /// Row i goes on with tokens[i].
  /// Shapes:  -> logits [R, V] of what may follow
  virtual Tensor step(const TokenIds& tokens) = 0;
  /// Row i becomes what row rows[i] was; their number may change.
  virtual void reorder(const std::vector<std::int32_t>& rows) = 0;
};

}  // namespace tapeformer
