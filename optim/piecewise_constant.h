#pragma once

#include <tapeformer/autograd/shape.h>

#include <string>
#include <vector>

namespace tapeformer {

/// A number that changes at shares of a run's steps, such as the rows of a batch. Written
/// "0.25:16,0.5:32": 16 from a quarter of the steps on, 32 from half of them on. Its value before the
/// first change is given separately; a change at 0 replaces it.
class PiecewiseConstant {
 public:
  /// A share of the steps, and the number from there on.
  struct Change {
    double share = 0;  ///< of the steps
    Index value = 0;   ///< from there on
  };

  /// An empty text gives `before` throughout.
  /// Throws: Error unless the text is as above: shares rising from 0 to below 1, values above 0
  PiecewiseConstant(const std::string& text, Index before);

  /// The number at step `step`, counted from 0, of `steps`.
  Index at(Index step, Index steps) const;
  /// The steps at which it changes, rising.
  std::vector<Index> changes(Index steps) const;
  /// The largest number of the whole run.
  Index largest() const;

 private:
  Index before_;
  std::vector<Change> changes_;
};

}  // namespace tapeformer
