#include <tapeformer/data/share.h>

namespace tapeformer {

Share share_of(Index count, int rank, int ranks) {
  const auto start = [&](Index of) { return (count * of + ranks - 1) / ranks; };
  return {start(rank), start(Index{rank} + 1)};
}

}  // namespace tapeformer
