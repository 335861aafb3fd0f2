#pragma once

#include <tapeformer/autograd/kernels/cuda/attention/paths.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {

enum class Ranges { none, causal, lengths, gaps, window, documents };

struct HopperCase {
  Index B, T, S, H, G, D, E;
  Ranges ranges = Ranges::none;
  bool is_packed = false;  // queries, keys and values of a position lie side by side
  double scale = 0.125;
  bool has_sinks = false;
};

/// [B T]: the first key that each query sees, or the one behind the last. With `lengths` some see none, and
/// with `gaps` there are keys that nobody sees between some that are seen; of `documents`, one behind the
/// other, some queries are not part, and whole tiles of them see nothing.
inline std::vector<std::int32_t> limits_of(const HopperCase& c, bool of_end) {
  std::vector<std::int32_t> limits;
  for (Index b = 0; b < c.B; ++b) {
    for (Index t = 0; t < c.T; ++t) {
      Index from = 0, to = c.S;
      if (c.ranges == Ranges::causal) to = std::min(c.S, std::max<Index>(0, t + 1 + c.S - c.T));
      if (c.ranges == Ranges::lengths) to = t + 5 < c.T ? (b + 1) * c.S / (c.B + 1) : 0;
      if (c.ranges == Ranges::gaps) from = t / 20 * 30 % c.S, to = std::min(c.S, from + 17);
      if (c.ranges == Ranges::window) from = std::max<Index>(0, t - 150), to = std::min(c.S, t + 1);
      if (c.ranges == Ranges::documents) from = t / 90 * 90, to = t < 120 || t > 390 ? t + 1 : from;
      limits.push_back(static_cast<std::int32_t>(of_end ? to : from));
    }
  }
  return limits;
}

/// Tensors of one case, their values as the GPU's bf16 has them.
struct Inputs {
  HopperCase c;
  Tensor query, key, value;           // in f64, [B, T, H, D], [B, S, G, D], [B, S, G, E]
  Tensor on_query, on_key, on_value;  // in bf16 on the GPU; the first one holds all if they are packed
  Tensor from, to;
  Tensor sinks, on_sinks;  // [H], in f64 and in f32 on the GPU, if there are any
  kernels::AttentionShape shape;

  const BFloat16* queries() const { return on_query.address<BFloat16>(); }
  const BFloat16* keys() const { return c.is_packed ? queries() + c.H * c.D : on_key.address<BFloat16>(); }
  const BFloat16* values() const { return c.is_packed ? keys() + c.G * c.D : on_value.address<BFloat16>(); }
};

inline Tensor rounded(const Tensor& x) { return x.to(DType::bf16).to(DType::f64); }

inline Inputs inputs_of(const HopperCase& c, std::uint64_t seed, Index shift = 0) {
  Generator random(test_seed(seed));
  Inputs in;
  in.c = c;
  in.query = rounded(host_normal({c.B, c.T, c.H, c.D}, random));
  in.key = rounded(host_normal({c.B, c.S, c.G, c.D}, random));
  in.value = rounded(host_normal({c.B, c.S, c.G, c.E}, random));
  if (c.has_sinks) {
    in.sinks = host_normal({c.H}, random).to(DType::f32).to(DType::f64);
    in.on_sinks = on_gpu(in.sinks.to(DType::f32));
  }
  kernels::AttentionShape& s = in.shape;
  s.batch = c.B, s.queries = c.T, s.keys = c.S, s.heads = c.H, s.groups = c.G;
  s.key_width = c.D, s.value_width = c.E, s.scale = c.scale;
  s.query = {c.T * c.H * c.D, c.H * c.D, c.D};
  s.key = {c.S * c.G * c.D, c.G * c.D, c.D};
  s.value = {c.S * c.G * c.E, c.G * c.E, c.E};
  const auto from = limits_of(c, false), to = limits_of(c, true);
  if (c.ranges != Ranges::none) {
    in.from = Tensor::from(from, {c.B, c.T}).to(Device::cuda());
    in.to = Tensor::from(to, {c.B, c.T}).to(Device::cuda());
    s.key_from = in.from.address<std::int32_t>(), s.key_to = in.to.address<std::int32_t>();
  }
  for (Index b = 0; b < c.B; ++b) {
    for (Index key = 0; key < c.S; ++key) {
      bool is_seen = false;
      for (Index t = b * c.T; t < (b + 1) * c.T; ++t)
        is_seen =
            is_seen || (key >= from[static_cast<std::size_t>(t)] && key < to[static_cast<std::size_t>(t)]);
      if (is_seen) continue;
      std::fill_n(in.key.data<double>() + (b * c.S + key) * c.G * c.D, c.G * c.D, NAN);
      std::fill_n(in.value.data<double>() + (b * c.S + key) * c.G * c.E, c.G * c.E, NAN);
    }
  }
  if (!c.is_packed) {
    in.on_query = on_gpu(in.query.to(DType::bf16), shift);
    in.on_key = on_gpu(in.key.to(DType::bf16), shift);
    in.on_value = on_gpu(in.value.to(DType::bf16), shift);
    return in;
  }
  const Index row = c.H * c.D + c.G * (c.D + c.E);
  const Tensor packed = Tensor::empty({c.B, c.T, row}, DType::f64, Device::cpu());
  for (Index at = 0; at < c.B * c.T; ++at) {
    double* to_row = packed.data<double>() + at * row;
    to_row = std::copy_n(in.query.data<double>() + at * c.H * c.D, c.H * c.D, to_row);
    to_row = std::copy_n(in.key.data<double>() + at * c.G * c.D, c.G * c.D, to_row);
    std::copy_n(in.value.data<double>() + at * c.G * c.E, c.G * c.E, to_row);
  }
  in.on_query = on_gpu(packed.to(DType::bf16), shift);
  s.query = {c.T * row, row, c.D};
  s.key = s.query, s.value = {c.T * row, row, c.E};
  return in;
}

/// Results or gradients of `elements`, with some memory behind them that nobody may touch.
inline Tensor guarded(Index elements, DType type) {
  return Tensor::full({elements + 64}, 7, type, Device::cuda());
}
/// Without what is behind them.
inline std::vector<double> guarded_values(const Tensor& x) {
  std::vector<double> all = readable(x).to_vector<double>();
  for (std::size_t i = 1; i <= 64; ++i) CHECK(all[all.size() - i] == 7);
  all.resize(all.size() - 64);
  return all;
}

/// The larger one; NaN, once there is one.
inline double worse(double worst, double error) {
  return error <= worst || std::isnan(worst) ? worst : error;
}

struct Outputs {
  explicit Outputs(const HopperCase& c)
      : y(guarded(c.B * c.T * c.H * c.E, DType::bf16)), log_sum(guarded(c.B * c.H * c.T, DType::f32)) {}
  Tensor y, log_sum;
};

inline bool run_forward(const Inputs& in, const Outputs& out, const kernels::HopperSchedule& schedule = {}) {
  const float* const sinks = in.c.has_sinks ? in.on_sinks.address<float>() : nullptr;
  return kernels::hopper_attention_forward({0}, in.shape, in.queries(), in.keys(), in.values(), nullptr,
                                           sinks, out.y.address<BFloat16>(), out.log_sum.address<float>(),
                                           schedule);
}

}  // namespace tapeformer
