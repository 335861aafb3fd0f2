#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/storage_limit.h>
#include <tapeformer/nn/attention/caches/contiguous_cache.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

TEST_CASE("the contiguous cache has room for exactly its capacity, or grows without one") {
  const auto stated = make_cache({CacheKind::contiguous, 7}, {2, 2});
  stated->append(random_values({1, 3, 2}, 1), random_values({1, 3, 2}, 2));
  CHECK(stated->keys().size(1) == 7);
  const auto growing = make_cache({}, {2, 2});
  Index grown = 0, room = 0;
  for (int step = 0; step < 1000; ++step) {
    growing->append(random_values({1, 1, 2}, 1), random_values({1, 1, 2}, 2));
    grown += growing->keys().size(1) != room;
    room = growing->keys().size(1);
  }
  CHECK(grown <= 7);
  CHECK(room <= 2 * 1000);
}

TEST_CASE("a contiguous cache without memory for values stays as it was") {
  const auto cache = make_cache({}, {1, 1000});
  const Tensor keys = random_values({1, 3, 1}, 1), values = random_values({1, 3, 1000}, 2);
  {
    const StorageLimit limit(10'000);
    CHECK_THROWS_AS(cache->append(keys, values), Error);
  }
  CHECK(cache->rows() == 0);
}
