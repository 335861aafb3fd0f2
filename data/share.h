#pragma once

#include <tapeformer/autograd/shape.h>

namespace tapeformer {

/// The items [begin, end) of a batch.
struct Share {
  /// The first item, and the one after the last.
  Index begin = 0, end = 0;
  /// The number of items.
  Index size() const { return end - begin; }
};

/// The share of `rank` when `ranks` processes divide `count` items: shares are adjacent, in the order of the
/// ranks, and their sizes differ by at most one; none is larger than rank 0's.
inline Share share_of(Index count, int rank, int ranks) {
  const auto start = [&](Index of) { return (count * of + ranks - 1) / ranks; };
  return {start(rank), start(Index{rank} + 1)};
}

}  // namespace tapeformer
