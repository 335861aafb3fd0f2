#include <tapeformer/autograd/kernels/cuda/attention/hopper/order.h>
#include <tapeformer/tests/autograd/kernels/attention_path_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <algorithm>

using namespace tapeformer;
using kernels::TileOrder;

namespace {

constexpr Index kTileRows = 128;

struct HopperCase {
  Index B, T, S, H, G, D, E;
  std::string ranges = "none";
  double dropout = 0;
};

/// With `lengths` some queries see nothing, with `gaps` unseen keys lie between seen ones; with `documents`,
/// one after the other, whole tiles of queries see nothing. With `late`, only the last queries see keys, of
/// which the first sequence has fewer.
AttentionCase case_of(const HopperCase& c, std::uint64_t seed) {
  Generator random(test_seed(seed));
  AttentionCase made = simple_case(c.B, c.T, c.S, c.H, c.G, c.D, c.E, random);
  AttentionOptions& options = made.options;
  options.dropout = c.dropout;
  const auto third = static_cast<std::int32_t>(c.S / 3);
  options.causal = c.ranges != "none" && c.ranges != "lengths" && c.ranges != "gaps";
  if (c.ranges == "window") options.window_before = 150;
  if (c.ranges == "late") options.key_lengths = integers({third, static_cast<std::int32_t>(c.S)}, {2});
  if (c.ranges == "lengths") {
    std::vector<std::int32_t> lengths;
    for (std::int32_t b = 0; b < c.B; ++b) lengths.push_back(third + 3 * b);
    options.key_lengths = integers(lengths, {c.B});
    std::vector<int> real(static_cast<std::size_t>(c.B * c.T), 1);
    for (Index i = c.T - 5; i < c.B * c.T; i += c.T) real[static_cast<std::size_t>(i)] = 0;
    options.query_mask = booleans(real, {c.B, c.T});
  }
  if (c.ranges == "gaps" || c.ranges == "documents") {
    const auto half = static_cast<std::int32_t>(c.T / 2), end = static_cast<std::int32_t>(c.T);
    options.query_starts = integers({0, half / 3, half, end}, {4});
    options.key_starts = integers({0, third, 2 * third, static_cast<std::int32_t>(c.S)}, {4});
    options.key_lengths = integers({third - 20, c.ranges == "gaps" ? 17 : 0, third}, {3});
  }
  return made;
}

void check_case(const HopperCase& c, std::uint64_t seed) {
  CAPTURE(c.T);
  CAPTURE(c.ranges);
  CAPTURE(c.dropout);
  Generator random(test_seed(seed));
  const AttentionCase made = case_of(c, seed);
  CHECK(KernelCase(made).hopper_forward());
  check_path(gpu_path("hopper", DType::bf16), made, random);
}

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

/// Whether the kernels took it.
bool backward_in(const KernelCase& c, const kernels::HopperSchedule& schedule) {
  const auto run = [&](auto&&... in) { return kernels::hopper_attention_backward(in..., schedule); };
  return c.backward(run, false);
}

}  // namespace

TEST_CASE("any lengths, widths and groups: as the definition has it") {
  const HopperCase cases[] = {
      {1, 128, 128, 1, 1, 64, 64},
      {1, 128, 128, 1, 1, 128, 128},
      {2, 131, 290, 2, 1, 64, 64},
      {2, 64, 70, 4, 2, 128, 128},
      {1, 200, 1, 1, 1, 128, 64},
      {1, 129, 200, 1, 1, 256, 256},
      {2, 65, 513, 1, 1, 72, 104},
      {1, 70, 333, 2, 1, 192, 40},
      {2, 131, 290, 2, 1, 64, 64, "none", 0.3},
      {1, 300, 700, 1, 1, 64, 64},
      {1, 400, 140, 1, 1, 64, 128},
      {1, 128, 128, 1, 1, 64, 64, "none", 0.5},
      {1, 200, 192, 2, 2, 128, 128, "none", 0.3},
      {3, 64, 129, 1, 1, 8, 40},
      {1, 129, 65, 4, 2, 128, 72, "none", 0.9},
      {1, 129, 200, 1, 1, 256, 256, "none", 0.3},
  };
  for (const HopperCase& c : cases)
    if (is_tried(&c - cases)) check_case(c, 1);
}

TEST_CASE("a range of keys for each query, with keys that nobody sees and queries that see nothing") {
  const HopperCase cases[] = {
      {1, 256, 256, 1, 1, 64, 64, "causal"},        {2, 200, 333, 2, 1, 64, 64, "causal"},
      {1, 300, 170, 1, 1, 128, 128, "causal"},      {3, 140, 301, 1, 1, 128, 128, "lengths"},
      {1, 130, 260, 1, 1, 256, 128, "gaps"},        {1, 190, 280, 1, 1, 256, 256, "causal"},
      {1, 260, 400, 2, 2, 64, 64, "gaps"},          {1, 300, 350, 1, 1, 128, 128, "window"},
      {1, 190, 320, 1, 1, 256, 256, "window", 0.3}, {2, 2050, 130, 1, 1, 8, 40, "late"},
      {2, 256, 256, 2, 1, 64, 64, "causal", 0.2},   {1, 300, 300, 2, 1, 128, 128, "causal", 0.2},
      {1, 260, 400, 2, 2, 64, 64, "gaps", 0.1},     {3, 140, 301, 1, 1, 128, 128, "lengths", 0.5},
      {1, 260, 260, 2, 2, 64, 64, "documents"},     {1, 260, 260, 2, 2, 64, 64, "documents", 0.3},
  };
  for (const HopperCase& c : cases)
    if (is_tried(&c - cases)) check_case(c, 2);
}

TEST_CASE("scores far from 0, and sinks above them and below") {
  Generator random(test_seed(8));
  for (const char* ranges : {"none", "lengths"}) {
    for (const double scale : {0.125, 2.0}) {
      if (tries_few() && scale > 1) continue;
      AttentionCase c = case_of({1, 131, 200, 2, 1, 64, 64, ranges}, 8);
      c.options.scale = scale;
      check_path(gpu_path("hopper", DType::bf16), c, random);
      c.options.sinks = random_normal({2}, random);
      check_path(gpu_path("hopper", DType::bf16), c, random);
    }
  }
}

TEST_CASE("inputs that the kernels do not support are left alone") {
  const AttentionCase small = case_of({1, 64, 80, 2, 1, 64, 64}, 6);
  const auto takes = [&](const auto& change) {
    KernelCase c(small);
    change(c, c.plan.shape);
    return c.hopper_forward();
  };
  const bool flag = true;
  CHECK(takes([](auto&, auto&) {}));
  CHECK(!takes([](auto& c, auto&) { c.key = on_gpu(c.key, 1); }));
  CHECK(takes([](auto& c, auto&) { c.key = on_gpu(c.key, 8); }));
  CHECK(!takes([](auto&, auto& s) { s.scale = 0; }));
  CHECK(!takes([](auto&, auto& s) { s.scale = 1e-60; }));
  CHECK(!takes([](auto&, auto& s) { s.scale = -1; }));
  CHECK(!takes([&](auto&, auto& s) { s.mask = &flag; }));
  CHECK(!takes([&](auto&, auto& s) { s.key_mask = &flag; }));
  CHECK(takes([](auto&, auto& s) { s.drops = true; }));
  CHECK(!takes([](auto&, auto& s) { s.drops = true, s.keys = Index{1} << 26; }));
  CHECK(!takes([](auto&, auto& s) { s.weighting = AttentionWeighting::sigmoid; }));
  CHECK(!takes([](auto&, auto& s) { s.queries = 63; }));
  CHECK(!takes([](auto&, auto& s) { s.key_width = 60; }));
  CHECK(!takes([](auto&, auto& s) { s.key_width = 264; }));
  CHECK(!takes([](auto&, auto& s) { s.key_width = s.value_width = 32; }));
  CHECK(!takes([](auto&, auto& s) { s.key.row += 4; }));
  CHECK(!takes([](auto&, auto& s) { s.key.row = 0; }));
  const auto takes_backward = [&](Index width, Index shift) {
    KernelCase c(case_of({1, 64, 64, 1, 1, width, 64}, 4));
    c.plain_forward();
    c.dvalue = on_gpu(c.dvalue, shift);
    return backward_in(c, {});
  };
  CHECK(takes_backward(64, 0));
  CHECK(takes_backward(64, 8));
  CHECK(!takes_backward(64, 4));
  CHECK(!takes_backward(136, 0));
}

TEST_CASE("attention uses it where it can") {
  const AttentionCase c = case_of({2, 100, 140, 2, 1, 64, 64}, 7);
  const KernelCase direct(c);
  REQUIRE(direct.hopper_forward());
  CHECK(same_values(attention_by("hopper", c.in, {}), direct.y));
  CHECK(!same_values(attention_by("tensor_cores", c.in, {}), direct.y));
  CHECK(!same_values(attention_by("plain", c.in, {}), direct.y));
  CHECK(
      message_of<DeviceError>([&] {
        attention_by("abacus", c.in, {});
      }).find("] TAPEFORMER_ATTENTION must be hopper, tensor_cores or plain; got abacus; try unsetting it") !=
      std::string::npos);
}

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

TEST_CASE("sections have as many heads as the cache holds, and blocks about the same work") {
  const HopperCase c{8, 1024, 1024, 12, 12, 64, 64};
  CHECK(order_of(c, 32 << 20).units_at_once == 96);
  CHECK(order_of(c, 16 << 20).units_at_once == 48);
  CHECK(order_of({8, 1024, 1024, 12, 3, 64, 64}, 4 << 20).units_at_once == 48);  // heads share their keys
  const HopperCase cases[] = {c,
                              {64, 1024, 1024, 12, 12, 64, 64},
                              {4, 2048, 2048, 12, 12, 64, 64},
                              {2, 4096, 4096, 16, 16, 128, 128},
                              {1, 16384, 16384, 12, 12, 128, 128}};
  for (const HopperCase& causal : cases) CHECK(imbalance(order_of(causal, 32 << 20), 132) < 1.04);
}

TEST_CASE("blocks that process many tiles or one, in one section or several: the same bits") {
  const HopperCase cases[] = {
      {1, 300, 300, 3, 1, 64, 64, "causal"},     {2, 131, 130, 2, 1, 64, 64},
      {1, 260, 260, 3, 3, 64, 64, "documents"},  {1, 300, 350, 2, 1, 128, 128, "window"},
      {1, 260, 260, 3, 3, 128, 72, "documents"}, {3, 140, 201, 1, 1, 128, 128, "lengths"},
      {1, 140, 200, 4, 2, 256, 256, "causal"},   {1, 260, 260, 2, 1, 256, 256, "documents"},
      {1, 200, 130, 2, 2, 256, 128, "gaps"},     {1, 260, 200, 2, 2, 64, 64, "causal", 0.3},
  };
  for (const HopperCase& c : cases) {
    if (!is_tried(&c - cases)) continue;
    CAPTURE(&c - cases);
    const AttentionCase made = case_of(c, 8);
    const KernelCase expected(made);
    REQUIRE(expected.hopper_forward());
    const bool tries_backward = (&c - cases) % 2 == 0, fits = std::max(c.D, c.E) <= 128;
    const bool has_backward = tries_backward && backward_in(expected, {});
    CHECK(has_backward == (tries_backward && fits));
    const Index tiles = c.B * c.H * ((c.T + kTileRows - 1) / kTileRows);
    const Index bytes = c.B * c.G * c.S * (c.D + c.E) * bytes_of(DType::bf16);
    for (const Index share : {2, 7}) {
      CAPTURE(share);
      const KernelCase got(made);
      const auto blocks = static_cast<int>((tiles + share - 1) / share);
      REQUIRE(got.hopper_forward({blocks, (bytes + share - 1) / share}));
      CHECK(same_values(got.y, expected.y));
      CHECK(got.log_sum.to_vector<float>() == expected.log_sum.to_vector<float>());
      if (!has_backward) continue;
      backward_in(got, {blocks, (bytes + share - 1) / share});
      CHECK(same_values(got.dquery, expected.dquery));
      CHECK(same_values(got.dkey, expected.dkey));
      CHECK(same_values(got.dvalue, expected.dvalue));
    }
  }
}
