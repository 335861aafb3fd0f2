#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/reference/native_sparse.h>

#include <algorithm>
#include <limits>

namespace tapeformer {
namespace {

using Parameters = std::map<std::string, Tensor>;

Tensor projected(const Parameters& p, const std::string& name, const Tensor& x) {
  const auto bias = p.find(name + ".bias");
  return linear(x, p.at(name + ".weight"), bias == p.end() ? Tensor() : bias->second);
}

/// [B, T, C] -> [B, T, heads, C / heads]
Tensor in_heads(const Tensor& x, Index heads) {
  return reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads});
}

/// The vectors of blocks of `span` tokens: [B, T, G, W] -> [B, N, G, W]
Tensor compressed(const Parameters& p, const std::string& name, const Tensor& x, Index span, Index stride) {
  const Index width = x.size(3);
  const Tensor positions = reshape(p.at(name + ".positions"), {span, width}), up = p.at(name + ".up.weight");
  TensorList blocks{slice(x, 1, 0, 0)};
  for (Index first = 0; first + span <= x.size(1); first += stride) {
    Tensor hidden;
    for (Index token = 0; token < span; ++token) {
      // Parts of `stride` tokens have their matrices one below the other.
      const Tensor own = slice(slice(up, 0, token / stride * width, width), 1, token % stride * width, width);
      const Tensor term = linear(slice(x, 1, first + token, 1) + slice(positions, 0, token, 1), own);
      hidden = token == 0 ? term : hidden + term;
    }
    blocks.push_back(linear(silu(hidden), p.at(name + ".down.weight")));
  }
  return concat(blocks, 1);
}

/// True where a query sees a key.
template <class Sees>
Tensor pairs(const Shape& shape, const Sees& sees) {
  const Tensor mask = Tensor::empty(shape, DType::boolean, Device::cpu());
  for (Index i = 0; i < mask.elements(); ++i)
    mask.data<bool>()[i] = sees(i / shape[-1] % shape[-2], i % shape[-1]);
  return mask;
}

}  // namespace

NativeSparseFormula native_sparse_formula(const AttentionConfig& given, const Parameters& parameters,
                                          const Tensor& tokens) {
  const AttentionConfig config = given.resolved();
  Parameters p;
  for (const auto& [name, value] : parameters) p[name] = value.to(Device::cpu());
  const Tensor x = tokens.to(Device::cpu());
  const auto own = [&](const char* name) { return static_cast<Index>(config.own.at(name)); };
  const Index span = own("nsa_span"), stride = own("nsa_stride"), block = own("nsa_block");
  const auto top_k = static_cast<std::size_t>(own("nsa_top_k"));
  const Index B = x.size(0), T = x.size(1), H = config.heads, G = config.key_heads(), R = H / G;
  const Index of_keys = G * config.key_width, of_values = G * config.value_width;
  const TensorList both =
      split(projected(p, "key_value", x), 2, {of_keys, of_keys, of_keys, of_values, of_values, of_values});
  const Tensor query = in_heads(projected(p, "query", x), H),
               gates = in_heads(sigmoid(projected(p, "gate", x)), 3);
  const auto turned = [&](const Tensor& heads) {
    return config.rotary ? rotary(heads, rotary_angles(config.rotations, config.key_width, 0, T, DType::f64,
                                                       Device::cpu()))
                         : heads;
  };
  const auto gated = [&](Index branch, const Tensor& y) {
    return y * reshape(slice(gates, 2, branch, 1), {B, T, H, 1});
  };

  const Tensor keys = compressed(p, "key_compression", in_heads(both[2], G), span, stride);
  const Index N = keys.size(1);
  AttentionOptions options;
  Tensor weights;  // [B, H, T, N]
  options.weights = &weights;
  options.mask = pairs({T, N}, [&](Index t, Index i) { return i * stride + span <= t + 1; });
  Tensor y = gated(
      0, composed_attention(query, keys,
                            compressed(p, "value_compression", in_heads(both[5], G), span, stride), options));

  double gap = std::numeric_limits<double>::infinity();
  const Tensor chosen = pairs({B, H, T, T}, [](Index, Index) { return false; });
  for (Index row = 0; row < B * G * T; ++row) {
    const Index t = row % T, group = row / T, first_head = group * R;  // of all B H heads
    std::vector<double> importance(static_cast<std::size_t>(T / block), 0);
    for (Index h = first_head; h < first_head + R; ++h)
      for (Index i = 0; i < N; ++i)
        for (Index token = i * stride; token < i * stride + span; token += stride)
          if (const auto j = static_cast<std::size_t>(token / block); j < importance.size())
            importance[j] += weights.at((h * T + t) * N + i);
    std::vector<std::pair<double, Index>> others;
    for (Index j = 1; j < t / block; ++j) others.emplace_back(-importance[static_cast<std::size_t>(j)], j);
    std::sort(others.begin(), others.end());
    std::vector<Index> blocks{t / block};
    if (t >= block && top_k > 1) blocks.push_back(0);
    for (std::size_t i = 0; i < others.size() && blocks.size() < top_k; ++i) {
      blocks.push_back(others[i].second);
      if (blocks.size() == top_k && i + 1 < others.size())
        gap = std::min(gap, others[i + 1].first - others[i].first);
    }
    for (Index h = first_head; h < first_head + R; ++h)
      for (const Index j : blocks)
        for (Index s = j * block; s < std::min(t + 1, (j + 1) * block); ++s)
          chosen.data<bool>()[(h * T + t) * T + s] = true;
  }
  options.mask = chosen;
  y = y + gated(1, composed_attention(turned(query), turned(in_heads(both[0], G)), in_heads(both[3], G),
                                      options));
  options.mask = {}, options.causal = true, options.window_before = own("nsa_window") - 1;
  y = y + gated(2, composed_attention(turned(query), turned(in_heads(both[1], G)), in_heads(both[4], G),
                                      options));
  return {projected(p, "output", reshape(y, {B, T, H * config.value_width})), gap};
}

}  // namespace tapeformer
