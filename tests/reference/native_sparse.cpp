#include <tapeformer/tests/reference/native_sparse.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapeformer {
namespace {

using Values = std::vector<double>;
/// [heads][tokens][width]
using Heads = std::vector<std::vector<Values>>;

constexpr double kFarthest = std::numeric_limits<double>::infinity();

Values product(const Tensor& weight, const Tensor& bias, const Values& x) {
  Values y;
  for (Index i = 0; i < weight.size(0); ++i) {
    double sum = bias.defined() ? bias.at(i) : 0;
    for (std::size_t j = 0; j < x.size(); ++j)
      sum += weight.at(i * weight.size(1) + static_cast<Index>(j)) * x[j];
    y.push_back(sum);
  }
  return y;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

Values rotated(const Values& x, std::size_t position, double base) {
  Values y = x;
  for (std::size_t i = 0; i + 1 < x.size(); i += 2) {
    const double angle = static_cast<double>(position) *
                         std::pow(base, -static_cast<double>(i) / static_cast<double>(x.size()));
    y[i] = x[i] * std::cos(angle) - x[i + 1] * std::sin(angle);
    y[i + 1] = x[i] * std::sin(angle) + x[i + 1] * std::cos(angle);
  }
  return y;
}

/// The weights of the keys for which sees(key) holds.
template <class Sees>
Values weights_of(const Values& query, const std::vector<Values>& keys, const Sees& sees) {
  Values weights(keys.size(), 0);
  double total = 0;
  for (std::size_t s = 0; s < keys.size(); ++s)
    if (sees(s))
      total += weights[s] = std::exp(dot(query, keys[s]) / std::sqrt(static_cast<double>(query.size())));
  for (double& weight : weights) weight = total > 0 ? weight / total : 0;
  return weights;
}

void add_weighted(double factor, const Values& weights, const std::vector<Values>& values, Values& to) {
  for (std::size_t s = 0; s < values.size(); ++s)
    for (std::size_t e = 0; e < to.size(); ++e) to[e] += factor * weights[s] * values[s][e];
}

/// One head's vectors of blocks of `span` tokens.
std::vector<Values> compressed(const std::map<std::string, Tensor>& p, const std::string& name,
                               const std::vector<Values>& x, std::size_t span, std::size_t stride) {
  const Tensor &positions = p.at(name + ".positions"), &up = p.at(name + ".up.weight");
  const std::size_t width = x.empty() ? 0 : x[0].size();
  std::vector<Values> y;
  for (std::size_t first = 0; first + span <= x.size(); first += stride) {
    Values hidden(width, 0);
    for (std::size_t i = 0; i < width; ++i) {
      for (std::size_t token = 0; token < span; ++token) {
        // Parts of `stride` tokens have their matrices one below the other.
        const std::size_t row = token / stride * width + i, column = token % stride * width;
        for (std::size_t j = 0; j < width; ++j)
          hidden[i] += up.at(static_cast<Index>(row * stride * width + column + j)) *
                       (x[first + token][j] + positions.at(static_cast<Index>(token * width + j)));
      }
      hidden[i] *= logistic(hidden[i]);
    }
    y.push_back(product(p.at(name + ".down.weight"), {}, hidden));
  }
  return y;
}

}  // namespace

NativeSparseFormula native_sparse_formula(const AttentionConfig& given,
                                          const std::map<std::string, Tensor>& p, const Tensor& x) {
  const AttentionConfig config = given.resolved();
  const auto own = [&](const char* name) { return static_cast<std::size_t>(config.own.at(name)); };
  const std::size_t span = own("nsa_span"), stride = own("nsa_stride"), block = own("nsa_block"),
                    top_k = own("nsa_top_k"), window = own("nsa_window");
  const auto B = x.size(0), C = x.size(2), H = config.heads, O = config.output_width;
  const auto T = static_cast<std::size_t>(x.size(1)), D = static_cast<std::size_t>(config.key_width),
             E = static_cast<std::size_t>(config.value_width),
             G = static_cast<std::size_t>(config.key_heads()), R = static_cast<std::size_t>(H) / G,
             blocks = T / block;
  const auto parameter = [&](const std::string& name) {
    const auto found = p.find(name);
    return found == p.end() ? Tensor() : found->second;
  };
  NativeSparseFormula result{Tensor::zeros({B, x.size(1), O}, DType::f64),
                             Tensor::full({B, H, x.size(1), x.size(1)}, 0, DType::boolean), kFarthest};
  for (Index b = 0; b < B; ++b) {
    Heads query(static_cast<std::size_t>(H)), key(3 * G), value(3 * G);
    std::vector<Values> gates;
    for (std::size_t t = 0; t < T; ++t) {
      Values token;
      for (Index c = 0; c < C; ++c) token.push_back(x.at((b * x.size(1) + static_cast<Index>(t)) * C + c));
      const Values queries = product(parameter("query.weight"), parameter("query.bias"), token),
                   both = product(parameter("key_value.weight"), parameter("key_value.bias"), token);
      gates.push_back(product(parameter("gate.weight"), parameter("gate.bias"), token));
      const auto part = [](const Values& all, std::size_t from, std::size_t count) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(from);
        return Values(begin, begin + static_cast<std::ptrdiff_t>(count));
      };
      for (std::size_t h = 0; h < query.size(); ++h) query[h].push_back(part(queries, h * D, D));
      for (std::size_t g = 0; g < 3 * G; ++g) {
        key[g].push_back(part(both, g * D, D));
        value[g].push_back(part(both, 3 * G * D + g * E, E));
      }
    }
    for (std::size_t g = 0; g < G; ++g) {
      const std::vector<Values> keys = compressed(p, "key_compression", key[2 * G + g], span, stride),
                                values = compressed(p, "value_compression", value[2 * G + g], span, stride);
      std::vector<Values> turned[2] = {key[g], key[G + g]};
      for (std::vector<Values>& of : turned)
        for (std::size_t t = 0; t < T && config.rotary; ++t) of[t] = rotated(of[t], t, config.rotations.base);
      for (std::size_t t = 0; t < T; ++t) {
        Values importance(blocks, 0);
        std::vector<Values> weights;
        for (std::size_t h = g * R; h < (g + 1) * R; ++h) {
          weights.push_back(
              weights_of(query[h][t], keys, [&](std::size_t i) { return i * stride + span <= t + 1; }));
          for (std::size_t i = 0; i < keys.size(); ++i)
            for (std::size_t token = i * stride; token < i * stride + span; token += stride)
              if (token / block < blocks) importance[token / block] += weights.back()[i];
        }
        std::vector<std::pair<double, std::size_t>> others;
        for (std::size_t j = 1; j < t / block; ++j) others.emplace_back(-importance[j], j);
        std::sort(others.begin(), others.end());
        std::vector<std::size_t> chosen{t / block};
        if (t >= block && top_k > 1) chosen.push_back(0);
        for (std::size_t i = 0; i < others.size() && chosen.size() < top_k; ++i) {
          chosen.push_back(others[i].second);
          if (chosen.size() == top_k && i + 1 < others.size())
            result.gap = std::min(result.gap, others[i + 1].first - others[i].first);
        }
        const auto is_chosen = [&](std::size_t s) {
          return s <= t && std::find(chosen.begin(), chosen.end(), s / block) != chosen.end();
        };
        for (std::size_t h = g * R; h < (g + 1) * R; ++h) {
          const Values turned_query =
              config.rotary ? rotated(query[h][t], t, config.rotations.base) : query[h][t];
          const auto gate = [&](Index branch) {
            return logistic(gates[t][static_cast<std::size_t>(branch * H) + h]);
          };
          Values y(E, 0);
          add_weighted(gate(0), weights[h - g * R], values, y);
          add_weighted(gate(1), weights_of(turned_query, turned[0], is_chosen), value[g], y);
          add_weighted(
              gate(2),
              weights_of(turned_query, turned[1], [&](std::size_t s) { return s <= t && t < s + window; }),
              value[G + g], y);
          const Tensor& output = p.at("output.weight");
          for (Index o = 0; o < O; ++o)
            for (std::size_t e = 0; e < E; ++e)
              result.y.data<double>()[(b * x.size(1) + static_cast<Index>(t)) * O + o] +=
                  output.at(o * output.size(1) + static_cast<Index>(h * E + e)) * y[e];
          for (std::size_t s = 0; s < T; ++s)
            result.chosen.data<bool>()[((b * H + static_cast<Index>(h)) * x.size(1) + static_cast<Index>(t)) *
                                           x.size(1) +
                                       static_cast<Index>(s)] = is_chosen(s);
        }
      }
    }
  }
  const Tensor bias = parameter("output.bias");
  for (Index i = 0; bias.defined() && i < result.y.elements(); ++i)
    result.y.data<double>()[i] += bias.at(i % O);
  return result;
}

}  // namespace tapeformer
