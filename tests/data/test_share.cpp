#include <doctest/doctest.h>
#include <tapeformer/data/share.h>

using namespace tapeformer;

TEST_CASE("shares lie side by side, cover everything, and are as equal as can be, the first the largest") {
  for (const Index count : {0, 1, 2, 3, 4, 5, 7, 12, 1001}) {
    for (int ranks = 1; ranks <= 7; ++ranks) {
      CAPTURE(count);
      CAPTURE(ranks);
      Index end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Share share = share_of(count, rank, ranks);
        CHECK(share.begin == end);
        CHECK(share.size() >= count / ranks);
        CHECK(share.size() <= share_of(count, 0, ranks).size());
        end = share.end;
      }
      CHECK(end == count);
      CHECK(share_of(count, 0, ranks).size() == (count + ranks - 1) / ranks);
    }
  }
}
