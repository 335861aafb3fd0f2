#include <doctest/doctest.h>
#include <tapeformer/data/share.h>

#include <vector>

using namespace tapeformer;

TEST_SUITE("data/share") {
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

  TEST_CASE("shares written out") {
    const auto sizes = [](Index count, int ranks) {
      std::vector<Index> all;
      for (int rank = 0; rank < ranks; ++rank) all.push_back(share_of(count, rank, ranks).size());
      return all;
    };
    CHECK(sizes(12, 1) == std::vector<Index>{12});
    CHECK(sizes(12, 4) == std::vector<Index>{3, 3, 3, 3});
    CHECK(sizes(8, 3) == std::vector<Index>{3, 3, 2});
    CHECK(sizes(2, 4) == std::vector<Index>{1, 0, 1, 0});
  }
}
