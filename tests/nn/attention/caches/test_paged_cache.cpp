#include <tapeformer/nn/attention/caches/paged_cache.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

TEST_CASE("rows that begin alike share blocks until they are written to, and give them back") {
  PagedCache cache({CacheKind::paged, 0, 4}, {1, 1});  // 4 tokens a block, 16 bytes per token
  const auto append = [&](Index tokens, double first) {
    const Tensor x = Tensor::empty({cache.rows() == 0 ? 1 : cache.rows(), tokens, 1}, DType::f64);
    for (Index i = 0; i < x.elements(); ++i) x.data<double>()[i] = first + static_cast<double>(i);
    cache.append(x, x);
  };
  const auto keys = [&] { return cache.keys().to_vector<double>(); };
  append(6, 0);
  cache.reorder({0, 0, 0});
  CHECK(cache.bytes() == 6 * 16);  // three rows for the price of one
  append(1, 10);
  CHECK(cache.bytes() == (4 + 3 * 3) * 16);  // only the block that is written to is copied
  CHECK(keys() == std::vector<double>{0, 1, 2, 3, 4, 5, 10, 0, 1, 2, 3, 4, 5, 11, 0, 1, 2, 3, 4, 5, 12});
  cache.reorder({2, 1, 2, 2});
  CHECK(cache.bytes() == (4 + 2 * 3) * 16);
  append(2, 20);  // fills the second block, and begins a third
  CHECK(cache.bytes() == (4 + 4 * 4 + 4 * 1) * 16);
  CHECK(keys() == std::vector<double>{0, 1, 2, 3, 4, 5, 12, 20, 21, 0, 1, 2, 3, 4, 5, 11, 22, 23,
                                      0, 1, 2, 3, 4, 5, 12, 24, 25, 0, 1, 2, 3, 4, 5, 12, 26, 27});
  CHECK(cache.values().to_vector<double>() == keys());
  cache.reorder({1});
  CHECK(cache.bytes() == 9 * 16);
  CHECK(keys() == std::vector<double>{0, 1, 2, 3, 4, 5, 11, 22, 23});
  const Index blocks = cache.pool_blocks();
  for (int i = 0; i < 50; ++i) {
    cache.reorder({0, 0, 0});
    cache.reorder({1});
  }
  append(blocks * 4 - 9, 30);  // uses every block that was given back
  CHECK(cache.pool_blocks() == blocks);
  CHECK(cache.bytes() == blocks * 4 * 16);
  append(1, 0);
  CHECK(cache.pool_blocks() > blocks);
}
