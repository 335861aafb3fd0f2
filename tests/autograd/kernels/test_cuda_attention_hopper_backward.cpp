#include <tapeformer/tests/autograd/kernels/hopper_case.h>

using namespace tapeformer;

namespace {

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

/// Numbers, and the sums of the sizes of what they are sums of: roundings are in proportion to these.
struct Sums {
  explicit Sums(Index elements) : exact(at(elements)), size(at(elements)) {}
  void add(Index i, double value, double of_size) { exact[at(i)] += value, size[at(i)] += of_size; }
  std::vector<double> exact, size;
};

struct Gradients {
  Sums query, key, value;
};

/// By the definition, from every pair.
Gradients gradients_of(const Inputs& in, const Tensor& dy) {
  const HopperCase& c = in.c;
  Gradients of{Sums(c.B * c.T * c.H * c.D), Sums(c.B * c.S * c.G * c.D), Sums(c.B * c.S * c.G * c.E)};
  const std::vector<std::int32_t> from = limits_of(c, false), to = limits_of(c, true);
  for (Index b = 0; b < c.B; ++b) {
    for (Index h = 0; h < c.H; ++h) {
      for (Index t = 0; t < c.T; ++t) {
        const Index g = h / (c.H / c.G), row = (b * c.T + t) * c.H + h;
        const Index begin = from[at(b * c.T + t)], end = to[at(b * c.T + t)];
        const double *q = in.query.data<double>() + row * c.D, *dy_row = dy.data<double>() + row * c.E;
        std::vector<double> weights, slopes;
        double total = 0, delta = 0, delta_size = 0;
        for (Index s = begin; s < end; ++s) {
          const Index key = (b * c.S + s) * c.G + g;
          double score = 0, slope = 0;
          for (Index d = 0; d < c.D; ++d) score += q[d] * in.key.data<double>()[key * c.D + d];
          for (Index e = 0; e < c.E; ++e) slope += dy_row[e] * in.value.data<double>()[key * c.E + e];
          weights.push_back(std::exp(c.scale * score)), slopes.push_back(slope);
          total += weights.back();
        }
        for (std::size_t i = 0; i < weights.size(); ++i) {
          weights[i] /= total;
          delta += weights[i] * slopes[i], delta_size += weights[i] * std::abs(slopes[i]);
        }
        for (Index s = begin; s < end; ++s) {
          const Index key = (b * c.S + s) * c.G + g;
          const double weight = weights[at(s - begin)], slope = slopes[at(s - begin)];
          const double dscore = c.scale * weight * (slope - delta),
                       size = c.scale * weight * (std::abs(slope) + delta_size);
          for (Index d = 0; d < c.D; ++d) {
            const double k = in.key.data<double>()[key * c.D + d];
            of.query.add(row * c.D + d, dscore * k, size * std::abs(k));
            of.key.add(key * c.D + d, dscore * q[d], size * std::abs(q[d]));
          }
          for (Index e = 0; e < c.E; ++e)
            of.value.add(key * c.E + e, weight * dy_row[e], weight * std::abs(dy_row[e]));
        }
      }
    }
  }
  return of;
}

/// The largest error of any element beside what roundings of factors and sums explain.
double worst_error(const std::vector<double>& got, const Sums& of, double before) {
  double worst = 0;
  REQUIRE(got.size() == of.exact.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - before - of.exact[i]);
    worst = worse(worst, error / (0x1p-7 * (std::abs(before) + of.size[i]) + 1e-5));
  }
  return worst;
}

/// The columns from `begin` of rows of `row` elements.
std::vector<double> columns_of(const Tensor& x, Index row, Index begin, Index count) {
  const std::vector<double> all = guarded_values(x);
  std::vector<double> columns;
  for (std::size_t i = 0; i < all.size(); i += at(row))
    columns.insert(columns.end(), all.begin() + static_cast<std::ptrdiff_t>(i) + begin,
                   all.begin() + static_cast<std::ptrdiff_t>(i) + begin + count);
  return columns;
}

struct Needed {
  bool query = true, key = true, value = true;
};

/// Gradients lie as the inputs do; those that are not needed stay as they are.
void check_backward(const HopperCase& c, std::uint64_t seed, bool adds = false, Needed needed = {}) {
  const Inputs in = inputs_of(c, seed);
  const Outputs out(c);
  REQUIRE(run_forward(in, out));
  Generator random(test_seed(seed + 100));
  const Tensor dy = rounded(host_normal({c.B, c.T, c.H, c.E}, random)), there = on_gpu(dy.to(DType::bf16));
  struct Destination {
    bool is_needed;
    Index rows, width;
    Tensor memory;
    Index row = 0, begin = 0;
  };
  Destination to[] = {{needed.query, c.B * c.T, c.H * c.D, {}},
                      {needed.key, c.B * c.S, c.G * c.D, {}},
                      {needed.value, c.B * c.S, c.G * c.E, {}}};
  const Index packed = to[0].width + to[1].width + to[2].width;
  kernels::Write<BFloat16> writes[3];
  for (std::size_t i = 0; i < 3; ++i) {
    Destination& own = to[i];
    own.row = c.is_packed ? packed : own.width;
    own.memory = c.is_packed && i > 0 ? to[0].memory : guarded(own.rows * own.row, DType::bf16);
    if (c.is_packed && i > 0) own.begin = to[i - 1].begin + to[i - 1].width;
    if (own.is_needed) writes[i] = {own.memory.address<BFloat16>() + own.begin, adds};
  }
  REQUIRE(kernels::hopper_attention_backward({0}, in.shape, in.queries(), in.keys(), in.values(), nullptr,
                                             out.y.address<BFloat16>(), out.log_sum.address<float>(),
                                             there.address<BFloat16>(), writes[0], writes[1], writes[2]));
  const Gradients expected = gradients_of(in, dy);
  const Sums* sums[] = {&expected.query, &expected.key, &expected.value};
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    const std::vector<double> got = columns_of(to[i].memory, to[i].row, to[i].begin, to[i].width);
    if (to[i].is_needed)
      CHECK_BELOW(worst_error(got, *sums[i], adds ? 7 : 0), 1);
    else
      CHECK(got == std::vector<double>(got.size(), 7));
  }
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_hopper_backward") {
  TEST_CASE("any lengths, widths and groups: as the definition has it") {
    const HopperCase cases[] = {
        {1, 128, 128, 1, 1, 64, 64},  {1, 128, 128, 1, 1, 128, 128}, {2, 131, 290, 2, 1, 64, 64},
        {1, 64, 70, 4, 2, 128, 128},  {1, 200, 1, 1, 1, 128, 64},    {1, 65, 313, 1, 1, 72, 104},
        {1, 400, 140, 1, 1, 64, 128},
    };
    for (const HopperCase& c : cases) {
      CAPTURE(&c - cases);
      check_backward(c, 1);
    }
    check_backward(cases[2], 2, true);
    check_backward(cases[5], 2, true);
  }

  TEST_CASE("gradients side by side in one tensor, and each of them alone: nothing else is written") {
    for (const bool adds : {false, true}) {
      check_backward({3, 70, 70, 4, 2, 64, 64, Ranges::none, true}, 5, adds);
      check_backward({2, 70, 70, 2, 1, 128, 72, Ranges::causal, true}, 6, adds);
    }
    const HopperCase c{1, 70, 90, 2, 1, 64, 48};
    check_backward(c, 7, false, {true, false, false});
    check_backward(c, 7, false, {false, true, false});
    check_backward(c, 7, true, {false, false, true});
    check_backward({3, 70, 70, 4, 2, 64, 64, Ranges::none, true}, 7, false, {false, true, false});
  }

  TEST_CASE("a range of keys for each query, with keys that nobody sees and queries that see nothing") {
    const HopperCase cases[] = {
        {1, 256, 256, 1, 1, 64, 64, Ranges::causal},   {2, 200, 333, 2, 1, 64, 64, Ranges::causal},
        {1, 300, 170, 1, 1, 128, 128, Ranges::causal}, {3, 140, 301, 1, 1, 128, 128, Ranges::lengths},
        {2, 260, 400, 2, 2, 64, 64, Ranges::gaps},
    };
    for (const HopperCase& c : cases) {
      CAPTURE(&c - cases);
      check_backward(c, 3);
    }
  }

  TEST_CASE("wider heads, and gradients at odd addresses, are left to others") {
    const auto takes = [](Index width, const Tensor& y, Index shift) {
      const Inputs in = inputs_of({1, 64, 64, 1, 1, width, 64}, 4);
      const Tensor gradients = guarded(3 * 64 * width, DType::bf16), log_sum = guarded(64, DType::f32);
      BFloat16* const to = gradients.address<BFloat16>();
      return kernels::hopper_attention_backward({0}, in.shape, in.queries(), in.keys(), in.values(), nullptr,
                                                y.address<BFloat16>(), log_sum.address<float>(),
                                                y.address<BFloat16>(), {to, false}, {to + 64 * width, false},
                                                {to + 2 * 64 * width + shift, false});
    };
    const Tensor y = guarded(64 * 64, DType::bf16);
    CHECK(takes(64, y, 0));
    CHECK(takes(64, y, 8));
    CHECK(!takes(64, y, 4));
    CHECK(!takes(136, y, 0));
  }
}
