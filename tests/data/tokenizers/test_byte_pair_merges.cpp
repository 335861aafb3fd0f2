#include <doctest/doctest.h>
#include <tapeformer/data/tokenizers/byte_pair_merges.h>
#include <tapeformer/tests/reference/text.h>

using namespace tapeformer;

namespace {

Ids applied(const BytePairMerges& merges, Ids tokens) {
  Ids ids;
  merges.apply(tokens.data(), tokens.size(), ids);
  return ids;
}

}  // namespace

TEST_CASE("the earliest merge comes first, and the leftmost of equal ones") {
  const BytePairMerges merges({{2, 3, 10}, {1, 2, 11}, {1, 1, 12}, {12, 1, 13}});
  CHECK(merges.list().size() == 4);
  CHECK(applied(merges, {}).empty());
  CHECK(applied(merges, {1}) == Ids{1});
  CHECK(applied(merges, {1, 2, 3}) == Ids{1, 10});
  CHECK(applied(merges, {1, 1, 1}) == Ids{13});
  CHECK(applied(merges, {1, 1, 1, 1}) == Ids{12, 12});
  CHECK(applied(BytePairMerges({}), {1, 2}) == Ids{1, 2});
  const BytePairMerges repeated({{2, 3, 10}, {1, 2, 11}, {2, 3, 99}});  // of equal parts the last counts
  CHECK(applied(repeated, {1, 2, 3}) == Ids{11, 3});
  CHECK(applied(repeated, {2, 3}) == Ids{99});
}
