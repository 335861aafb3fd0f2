#include <tapeformer/nn/attention/caches/state_cache.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

TEST_CASE("a state replaces the one before, in the same memory, and the first call has none") {
  StateCache cache({0, 0, 4});
  CHECK_FALSE(cache.state(2).defined());
  CHECK_FALSE(cache.reserve(1));
  CHECK(cache.bytes() == 0);
  cache.advance(random_values({2, 4}, 1), 3);
  const void* place = cache.keys().raw();
  const Tensor second = random_values({2, 4}, 2);
  cache.advance(second, 5);
  CHECK(cache.length() == 8);
  CHECK(cache.rows() == 2);
  CHECK(cache.bytes() == 2 * 4 * 8);
  CHECK(cache.keys().raw() == place);
  CHECK(same_bits(cache.state(2), second));
  CHECK(cache.reserve(1000));
  cache.set_length(0);
  CHECK_FALSE(cache.state(2).defined());
  cache.clear();
  CHECK(cache.rows() == 0);
}

TEST_CASE("rows are selected, repeated and removed") {
  StateCache cache({0, 0, 2});
  cache.reorder({});
  cache.advance(Tensor::from<double>({1, 2, 3, 4}, {2, 2}), 1);
  cache.reorder({1, 0, 1});
  CHECK(cache.state(3).to_vector<double>() == std::vector<double>{3, 4, 1, 2, 3, 4});
  CHECK(message_of<ShapeError>([&] { cache.reorder({3}); }) ==
        "[kv_cache] reorder takes existing rows; got row 3 of 3");
  cache.reorder({});
  CHECK(cache.rows() == 0);
  CHECK(cache.length() == 0);
}

TEST_CASE("keys, another number of rows, and recorded states are refused") {
  StateCache cache({0, 0, 2});
  const Tensor x = random_values({1, 2}, 1);
  CHECK(message_of<Error>([&] { cache.append(x, {}); }) ==
        "[state_cache] a state holds no keys; got keys=f64[1,2]; try the cache of the layer that makes them");
  cache.advance(x, 1);
  CHECK(message_of<ShapeError>([&] { cache.state(2); }) ==
        "[state_cache] the number of rows must stay the same; got 2 after 1 row of 1 token; try reorder() or "
        "clear()");
  Tape tape;
  tape.watch(x);
  CHECK(message_of<TapeError>([&] { cache.advance(x, 1); }) ==
        "[state_cache] a cached state has no gradient; got x=f64[1,2]; try without a cache, or NoGradGuard");
}
