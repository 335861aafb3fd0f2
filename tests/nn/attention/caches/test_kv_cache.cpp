#include <tapeformer/nn/attention/caches/kv_cache.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

namespace {

/// The expected content of a cache: tokens of `width` numbers, row by row.
struct Expected {
  std::vector<std::vector<double>> rows;

  void append(const Tensor& x) {
    rows.resize(static_cast<std::size_t>(x.size(0)));
    const Index numbers = x.size(1) * x.size(2);
    for (Index i = 0; i < x.elements(); ++i) rows[static_cast<std::size_t>(i / numbers)].push_back(x.at(i));
  }
  void reorder(const std::vector<std::int32_t>& order) {
    std::vector<std::vector<double>> next;
    for (const std::int32_t row : order) next.push_back(rows[static_cast<std::size_t>(row)]);
    rows = next;
  }
};

void check_holds(const Tensor& held, const Expected& expected, Index length) {
  REQUIRE(held.size(0) == static_cast<Index>(expected.rows.size()));
  REQUIRE(held.size(1) >= length);
  const Index width = held.size(2);
  Index wrong = 0;
  for (Index row = 0; row < held.size(0); ++row) {
    const std::vector<double>& numbers = expected.rows[static_cast<std::size_t>(row)];
    REQUIRE(static_cast<Index>(numbers.size()) == length * width);
    for (Index i = 0; i < length * width; ++i)
      wrong += held.at(row * held.size(1) * width + i) != numbers[static_cast<std::size_t>(i)];
  }
  CHECK(wrong == 0);
}

CacheConfig config_of(CacheKind kind, Index capacity = 0, Index block_size = 4) {
  return {kind, capacity, block_size};
}

constexpr CacheKind kKinds[] = {CacheKind::contiguous, CacheKind::paged};

}  // namespace

TEST_CASE("a cache holds what was appended, through any appends and reorders, in both types") {
  for (const CacheKind kind : kKinds) {
    for (const DType type : {DType::f32, DType::f64}) {
      for (const CacheWidths widths : {CacheWidths{3, 5}, CacheWidths{7, 0}}) {
        INFO(name_of(kind), " ", name_of(type), " value width ", widths.value);
        const auto cache = make_cache(config_of(kind), widths);
        Generator random(test_seed(1));
        Index rows = 3, length = 0;
        Expected keys, values;
        for (int step = 0; step < 200; ++step) {
          const Index choice = random.below(50);
          if (choice == 0) {
            cache->clear();
            keys = values = {};
            rows = 1 + random.below(4);
            length = 0;
          } else if (choice < 15) {
            std::vector<std::int32_t> order(static_cast<std::size_t>(1 + random.below(6)));
            for (std::int32_t& row : order) row = static_cast<std::int32_t>(random.below(rows));
            cache->reorder(order);
            if (length > 0) keys.reorder(order), rows = static_cast<Index>(order.size());
            if (length > 0 && widths.value > 0) values.reorder(order);
          } else {
            const Index tokens = 1 + random.below(choice < 20 ? 9 : 2);
            const Tensor k = random_normal({rows, tokens, widths.key}, random, type);
            const Tensor v =
                widths.value > 0 ? random_normal({rows, tokens, widths.value}, random, type) : Tensor();
            cache->append(k, v);
            keys.append(k);
            if (v.defined()) values.append(v);
            length += tokens;
          }
          REQUIRE(cache->length() == length);
          if (length == 0) continue;
          REQUIRE(cache->rows() == rows);
          CHECK(cache->keys().dtype() == type);
          check_holds(cache->keys(), keys, length);
          CHECK(cache->values().defined() == (widths.value > 0));
          if (widths.value > 0) check_holds(cache->values(), values, length);
          CHECK(cache->lengths().to_vector<std::int32_t>() ==
                std::vector<std::int32_t>(static_cast<std::size_t>(rows), static_cast<std::int32_t>(length)));
        }
      }
    }
  }
}

TEST_CASE("bytes are those of the cached tokens") {
  for (const CacheKind kind : kKinds) {
    const auto cache = make_cache(config_of(kind), {3, 5});
    CHECK(cache->bytes() == 0);
    cache->append(random_values({2, 9, 3}, 1), random_values({2, 9, 5}, 2));
    CHECK(cache->bytes() == 2 * 9 * (3 + 5) * 8);
    cache->clear();
    cache->append(random_values({1, 2, 3}, 1, DType::f32), random_values({1, 2, 5}, 2, DType::f32));
    CHECK(cache->bytes() == 2 * (3 + 5) * 4);
  }
  const auto latent = make_cache({}, {7, 0});
  latent->append(random_values({3, 5, 7}, 1), {});
  CHECK(latent->bytes() == 3 * 5 * 7 * 8);
}

TEST_CASE("what does not fit is refused") {
  for (const CacheKind kind : kKinds) {
    const auto cache = make_cache(config_of(kind, 6), {2, 3});
    const auto keys = [](Index rows, Index tokens, DType type = DType::f64) {
      return random_values({rows, tokens, 2}, 1, type);
    };
    const auto values = [](Index rows, Index tokens, DType type = DType::f64) {
      return random_values({rows, tokens, 3}, 2, type);
    };
    cache->reorder({4, 5});  // nothing there yet
    const std::string shapes = message_of<ShapeError>([&] { cache->append(keys(2, 1), keys(2, 1)); });
    CHECK(shapes ==
          "[kv_cache] keys and values must be [rows, tokens, width]; got keys=f64[2,1,2], values=f64[2,1,2] "
          "for key width 2, value width 3");
    for (const Tensor& other : {Tensor(), values(2, 2)})
      CHECK_THROWS_WITH_AS(cache->append(keys(2, 1), other),
                           doctest::Contains("must be [rows, tokens, width]"), ShapeError);
    cache->append(keys(2, 4), values(2, 4));
    CHECK_THROWS_WITH_AS(cache->append(keys(3, 1), values(3, 1)),
                         doctest::Contains("the number of rows must stay the same"), ShapeError);
    CHECK_THROWS_WITH_AS(cache->append(keys(2, 3), values(2, 3)),
                         doctest::Contains("a row must not hold more than 6 tokens"), ShapeError);
    CHECK_THROWS_WITH_AS(cache->append(keys(2, 1, DType::f32), values(2, 1, DType::f32)),
                         doctest::Contains("one floating type, here f64"), DTypeError);
    for (const std::int32_t row : {-1, 2}) {
      CHECK(message_of<ShapeError>([&] {
              cache->reorder({0, row});
            }) == "[kv_cache] reorder takes existing rows; got row " + std::to_string(row) + " of 2");
    }
    {
      Tape tape;
      const Tensor watched = keys(2, 1);
      tape.watch(watched);
      CHECK_THROWS_WITH_AS(cache->append(watched, values(2, 1)),
                           doctest::Contains("try without a cache, or NoGradGuard"), TapeError);
    }
    CHECK(cache->length() == 4);
    cache->append(keys(2, 2), values(2, 2));
    cache->reorder({});
    CHECK(cache->rows() == 0);
    CHECK(cache->length() == 0);
  }
  CHECK_THROWS_AS(make_cache(config_of(CacheKind::paged, 0, 0), {1, 1}), Error);
  CHECK_THROWS_AS(make_cache({}, {0, 1}), Error);
}
