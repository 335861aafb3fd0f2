#pragma once

#include <tapeformer/tests/autograd/ops/attention_problem.h>

namespace tapeformer {

/// A tenth of the cases on a GPU: emulated, plain operations take a hundred times as long.
inline int cases_here(int cases) { return default_device().is_cuda() ? cases / 10 : cases; }

/// Per query [B, T, H] and per key [B, S, G]: is any of its pairs unmasked?
struct Touched {
  std::vector<bool> queries, keys;
};
inline Touched touched(const AttentionCase& c) {
  const Index B = c.in.B(), T = c.in.T(), H = c.in.H(), S = c.in.S(), G = c.in.G();
  const LeftIn left_in(moved(c.options, Device::cpu()), c.in);
  Touched result{std::vector<bool>(static_cast<std::size_t>(B * T * H)),
                 std::vector<bool>(static_cast<std::size_t>(B * S * G))};
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, t = row % T;
    for (Index s = 0; s < S; ++s) {
      if (!left_in(b, h, t, s)) continue;
      result.queries[static_cast<std::size_t>((b * T + t) * H + h)] = true;
      result.keys[static_cast<std::size_t>((b * S + s) * G + h / (H / G))] = true;
    }
  }
  return result;
}

/// The gradients of query, key and value are exactly zero in masked rows.
inline void check_untouched(const AttentionCase& c, const std::vector<Tensor>& gradients) {
  const Touched real = touched(c);
  for (std::size_t k = 0; k < 3; ++k) {
    const std::vector<bool>& is_real = k == 0 ? real.queries : real.keys;
    const Tensor dx = gradients[k].to(Device::cpu());
    for (Index i = 0; i < dx.elements(); ++i) {
      if (!is_real[static_cast<std::size_t>(i / dx.size(3))]) REQUIRE(dx.at(i) == 0);
    }
  }
}

}  // namespace tapeformer
