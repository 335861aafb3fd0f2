#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/tests/autograd/kernels/hopper_case.h>

#include <algorithm>
#include <cstdlib>

using namespace tapeformer;

namespace {

/// Attention of one row by its definition: y, the sums of |weight value|, and the logarithm of the sum.
struct Row {
  std::vector<double> y, size;
  double log_sum = -INFINITY;
};
Row row_of(const Inputs& in, Index b, Index h, Index t) {
  const HopperCase& c = in.c;
  const Index g = h / (c.H / c.G), from = limits_of(c, false)[static_cast<std::size_t>(b * c.T + t)],
              to = limits_of(c, true)[static_cast<std::size_t>(b * c.T + t)];
  Row row{std::vector<double>(static_cast<std::size_t>(c.E)),
          std::vector<double>(static_cast<std::size_t>(c.E))};
  std::vector<double> scores;
  double largest = -INFINITY, total = 0;
  for (Index key = from; key < to; ++key) {
    double score = 0;
    for (Index d = 0; d < c.D; ++d)
      score += in.query.data<double>()[((b * c.T + t) * c.H + h) * c.D + d] *
               in.key.data<double>()[((b * c.S + key) * c.G + g) * c.D + d];
    scores.push_back(c.scale * score);
    largest = std::max(largest, scores.back());
  }
  for (const double score : scores) total += std::exp(score - largest);
  if (c.has_sinks && total > 0) total += std::exp(in.sinks.at(h) - largest);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double weight = std::exp(scores[i] - largest) / total;
    for (Index e = 0; e < c.E; ++e) {
      const double part =
          weight * in.value.data<double>()[((b * c.S + from + static_cast<Index>(i)) * c.G + g) * c.E + e];
      row.y[static_cast<std::size_t>(e)] += part;
      row.size[static_cast<std::size_t>(e)] += std::abs(part);
    }
  }
  if (total > 0) row.log_sum = largest + std::log(total);
  return row;
}

/// Weights and results are rounded to bf16 once each.
void check_case(const HopperCase& c, std::uint64_t seed) {
  const Inputs in = inputs_of(c, seed);
  const Outputs out(c);
  REQUIRE(run_forward(in, out));
  const std::vector<double> y = guarded_values(out.y), log_sum = guarded_values(out.log_sum);
  double worst = 0, worst_sum = 0;
  for (Index b = 0; b < c.B; ++b) {
    for (Index h = 0; h < c.H; ++h) {
      for (Index t = 0; t < c.T; ++t) {
        const Row row = row_of(in, b, h, t);
        for (Index e = 0; e < c.E; ++e) {
          const auto at = static_cast<std::size_t>(e);
          const double got = y[static_cast<std::size_t>(((b * c.T + t) * c.H + h) * c.E + e)];
          const double error =
              std::abs(got - row.y[at]) / (0x1.1p-8 * (std::abs(row.y[at]) + row.size[at]) + 1e-5);
          worst = worse(worst, error);
        }
        const double got = log_sum[static_cast<std::size_t>((b * c.H + h) * c.T + t)];
        if (got == row.log_sum) continue;
        const double error = std::abs(got - row.log_sum) / (1 + std::abs(row.log_sum));
        worst_sum = worse(worst_sum, error);
      }
    }
  }
  CHECK_BELOW(worst, 1);
  CHECK_BELOW(worst_sum, 3e-6);
}

/// While it lives, attention is told to take a path.
class Path {
 public:
  explicit Path(const char* name) { setenv("TAPEFORMER_ATTENTION", name, 1); }
  ~Path() { unsetenv("TAPEFORMER_ATTENTION"); }
  Path(const Path&) = delete;
  Path& operator=(const Path&) = delete;
};

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_hopper") {
  TEST_CASE("any lengths, widths and groups: as the definition has it") {
    const HopperCase cases[] = {
        {1, 128, 128, 1, 1, 64, 64},   {1, 128, 128, 1, 1, 128, 128}, {2, 131, 290, 2, 1, 64, 64},
        {2, 64, 70, 4, 2, 128, 128},   {1, 200, 1, 1, 1, 128, 64},    {2, 65, 513, 1, 1, 72, 104},
        {1, 129, 200, 1, 1, 256, 256}, {1, 70, 333, 2, 1, 192, 40},   {3, 64, 129, 1, 1, 8, 40},
        {1, 300, 1100, 1, 1, 64, 64},
    };
    for (const HopperCase& c : cases) {
      CAPTURE(&c - cases);
      check_case(c, 1);
    }
  }

  TEST_CASE("a range of keys for each query, with keys that nobody sees and queries that see nothing") {
    const HopperCase cases[] = {
        {1, 256, 256, 1, 1, 64, 64, Ranges::causal},   {2, 200, 333, 2, 1, 64, 64, Ranges::causal},
        {1, 300, 170, 1, 1, 128, 128, Ranges::causal}, {3, 140, 301, 1, 1, 128, 128, Ranges::lengths},
        {2, 260, 400, 2, 2, 64, 64, Ranges::gaps},     {1, 190, 280, 1, 1, 256, 256, Ranges::causal},
        {1, 130, 260, 1, 1, 256, 128, Ranges::gaps},   {1, 520, 520, 1, 1, 128, 128, Ranges::causal},
        {1, 420, 500, 1, 1, 128, 128, Ranges::window}, {1, 500, 500, 2, 2, 64, 64, Ranges::documents},
    };
    for (const HopperCase& c : cases) {
      CAPTURE(&c - cases);
      check_case(c, 2);
    }
  }

  TEST_CASE("queries, keys and values side by side in one tensor: no entry reads the next one's") {
    check_case({3, 90, 90, 4, 2, 64, 64, Ranges::none, true}, 3);
    check_case({2, 150, 150, 2, 1, 128, 64, Ranges::causal, true}, 4);
  }

  TEST_CASE("scores far from 0") { check_case({1, 128, 300, 1, 1, 64, 64, Ranges::none, false, 4.0}, 5); }

  TEST_CASE("sinks, above the scores and below") {
    check_case({1, 131, 290, 4, 2, 64, 64, Ranges::none, false, 2.0, true}, 8);
    check_case({1, 131, 30, 4, 2, 64, 64, Ranges::none, false, 0.125, true}, 8);
    check_case({2, 140, 160, 1, 1, 128, 128, Ranges::lengths, false, 0.125, true}, 9);
    check_case({1, 130, 260, 1, 1, 256, 128, Ranges::gaps, false, 0.125, true}, 10);
  }

  TEST_CASE("inputs that it does not support are left alone") {
    const HopperCase c{1, 64, 80, 2, 1, 64, 64};
    const auto takes = [&](const auto& change, Index shift = 0) {
      Inputs in = inputs_of(c, 6, shift);
      change(in.shape);
      return run_forward(in, Outputs(c));
    };
    const bool flag = true;
    CHECK(takes([](auto&) {}));
    CHECK(!takes([](auto&) {}, 1));
    CHECK(takes([](auto&) {}, 8));
    CHECK(!takes([](auto& s) { s.scale = 0; }));
    CHECK(!takes([](auto& s) { s.scale = -1; }));
    CHECK(!takes([&](auto& s) { s.mask = &flag; }));
    CHECK(!takes([&](auto& s) { s.key_mask = &flag; }));
    CHECK(!takes([](auto& s) { s.drops = true; }));
    CHECK(!takes([](auto& s) { s.queries = 63; }));
    CHECK(!takes([](auto& s) { s.key_width = 60; }));
    CHECK(!takes([](auto& s) { s.key_width = 264; }));
    CHECK(!takes([](auto& s) { s.key_width = s.value_width = 32; }));
    CHECK(!takes([](auto& s) { s.key.row += 4; }));
    CHECK(!takes([](auto& s) { s.key.row = 0; }));
  }

  TEST_CASE("attention takes it where it can") {
    const HopperCase c{2, 100, 140, 2, 1, 64, 64};
    const Inputs in = inputs_of(c, 7);
    const Outputs out(c);
    REQUIRE(run_forward(in, out));
    AttentionOptions options;
    options.scale = c.scale;
    const auto y_of = [&] {
      return scaled_dot_product_attention(in.on_query, in.on_key, in.on_value, options).to_vector<BFloat16>();
    };
    const auto same = [&](const std::vector<BFloat16>& y) {
      const auto expected = out.y.to_vector<BFloat16>();
      return std::equal(y.begin(), y.end(), expected.begin(),
                        [](BFloat16 a, BFloat16 b) { return a.bits == b.bits; });
    };
    CHECK(same(y_of()));
    for (const char* slower : {"tensor_cores", "plain"}) {
      const Path path(slower);
      CHECK(!same(y_of()));
    }
    const Path path("abacus");
    CHECK(message_of<DeviceError>(y_of).find(
              "] TAPEFORMER_ATTENTION is hopper, tensor_cores or plain; got abacus; try without it") !=
          std::string::npos);
  }
}
