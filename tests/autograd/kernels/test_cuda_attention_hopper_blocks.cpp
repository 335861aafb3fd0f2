#include <tapeformer/autograd/kernels/cuda/attention/hopper/order.h>
#include <tapeformer/tests/autograd/kernels/hopper_case.h>

#include <algorithm>
#include <cstring>

using namespace tapeformer;
using kernels::TileOrder;

namespace {

constexpr Index kTileRows = 128;

TileOrder order_of(const HopperCase& c, Index cached_bytes) {
  kernels::AttentionShape s;
  s.batch = c.B, s.queries = c.T, s.keys = c.S, s.heads = c.H, s.groups = c.G;
  s.key_width = c.D, s.value_width = c.E;
  return kernels::order_of(s, kTileRows, cached_bytes);
}

/// The most tiles of keys that a block multiplies with a causal mask, over their mean.
double imbalance(const TileOrder& order, int blocks) {
  double most = 0, all = 0;
  for (int block = 0; block < blocks; ++block) {
    double own = 0;
    for (int n = 0; kernels::position_of(n, block, blocks) < order.size(); ++n)
      own += order.at(kernels::position_of(n, block, blocks)).index + 1;
    most = std::max(most, own), all += own;
  }
  return most * blocks / all;
}

/// Bytes, so that NaN equals NaN; with the memory behind them.
template <class T>
std::vector<char> bits_of(const Tensor& x) {
  const std::vector<T> values = x.to_vector<T>();
  std::vector<char> bits(values.size() * sizeof(T));
  std::memcpy(bits.data(), values.data(), bits.size());
  return bits;
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_hopper_blocks") {
  TEST_CASE("every tile has one position in the order, and every position one block") {
    for (const Index cached_bytes : {1, 300000, 1 << 20, 32 << 20}) {
      const TileOrder order = order_of({3, 700, 700, 5, 5, 64, 64}, cached_bytes);
      REQUIRE(order.size() == 15 * 6);
      std::vector<int> times(15 * 6);
      for (int position = 0; position < order.size(); ++position) {
        const TileOrder::Tile tile = order.at(position);
        REQUIRE((tile.unit >= 0 && tile.unit < 15 && tile.index >= 0 && tile.index < 6));
        ++times[static_cast<std::size_t>(tile.unit * 6 + tile.index)];
      }
      CHECK(times == std::vector<int>(15 * 6, 1));
      for (const int blocks : {1, 7, 89, 90}) {
        times.assign(15 * 6, 0);
        for (int block = 0; block < blocks; ++block) {
          for (int n = 0; kernels::position_of(n, block, blocks) < order.size(); ++n)
            ++times[static_cast<std::size_t>(kernels::position_of(n, block, blocks))];
        }
        CHECK(times == std::vector<int>(15 * 6, 1));
      }
    }
  }

  TEST_CASE("the longest tiles come first, in sections of as many heads as the cache holds") {
    const HopperCase c{8, 1024, 1024, 12, 12, 64, 64};
    const TileOrder all = order_of(c, 32 << 20);
    CHECK(all.units_at_once == 96);
    int before = 7;
    for (int position = 0; position < all.size(); ++position) {
      const int index = all.at(position).index;
      CHECK(index <= before);
      before = index;
    }
    const TileOrder halves = order_of(c, 16 << 20);
    CHECK(halves.units_at_once == 48);
    for (int position = 0; position < halves.size(); ++position)
      CHECK(halves.at(position).unit / 48 == position / (48 * 8));
    CHECK(halves.at(0).index == 0);
    CHECK(halves.at(halves.size() - 1).index == 0);
    // Heads of one group share their keys.
    CHECK(order_of({8, 1024, 1024, 12, 3, 64, 64}, 4 << 20).units_at_once == 48);
  }

  TEST_CASE("with a causal mask blocks have about the same work") {
    const HopperCase cases[] = {{8, 1024, 1024, 12, 12, 64, 64},
                                {64, 1024, 1024, 12, 12, 64, 64},
                                {4, 2048, 2048, 12, 12, 64, 64},
                                {2, 4096, 4096, 16, 16, 128, 128},
                                {1, 16384, 16384, 12, 12, 128, 128}};
    for (const HopperCase& c : cases) {
      CAPTURE(&c - cases);
      CHECK(imbalance(order_of(c, 32 << 20), 132) < 1.04);
    }
  }

  TEST_CASE("blocks that work off many tiles, or one, in one section or several: the same bits") {
    const HopperCase cases[] = {
        {1, 1024, 1024, 2, 1, 64, 64, Ranges::causal},   {2, 131, 290, 4, 1, 64, 64},
        {2, 500, 500, 2, 2, 64, 64, Ranges::documents},  {1, 420, 500, 3, 1, 128, 128, Ranges::window},
        {1, 500, 500, 2, 2, 128, 72, Ranges::documents}, {3, 140, 301, 2, 1, 128, 128, Ranges::lengths},
        {1, 280, 280, 4, 2, 256, 256, Ranges::causal},   {1, 500, 500, 2, 1, 256, 256, Ranges::documents},
        {2, 200, 300, 2, 2, 256, 128, Ranges::gaps},
    };
    for (const HopperCase& c : cases) {
      CAPTURE(&c - cases);
      const Inputs in = inputs_of(c, 8);
      const Outputs expected(c);
      REQUIRE(run_forward(in, expected));
      const Index units = c.B * c.H, tiles = units * ((c.T + kTileRows - 1) / kTileRows);
      const Index bytes = c.B * c.G * c.S * (c.D + c.E) * bytes_of(DType::bf16);
      for (const Index share : {2, 3, 7}) {
        CAPTURE(share);
        const Outputs out(c);
        const auto blocks = static_cast<int>((tiles + share - 1) / share);
        REQUIRE(run_forward(in, out, {blocks, (bytes + share - 1) / share}));
        CHECK(bits_of<BFloat16>(out.y) == bits_of<BFloat16>(expected.y));
        CHECK(bits_of<float>(out.log_sum) == bits_of<float>(expected.log_sum));
      }
    }
  }
}
