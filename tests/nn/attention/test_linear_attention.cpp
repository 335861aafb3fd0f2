#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/caches/state_cache.h>
#include <tapeformer/nn/attention/linear_attention.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/check_gradients.h>

#include <cmath>

using namespace tapeformer;

namespace {

constexpr const char* kLinearKinds[] = {"gla", "deltanet", "gated_deltanet", "kda"};

AttentionConfig config_of(const char* kind) {
  AttentionConfig config;
  config.kind = kind;
  config.width = 6, config.heads = 3, config.key_width = 4, config.value_width = 5, config.output_width = 7;
  return config;
}

std::string refusal(const Attention& layer, const Tensor& x,
                    const std::function<void(AttentionContext&)>& change) {
  AttentionContext context = causal_context();
  change(context);
  return message_of<Error>([&] { layer(x, x, context); });
}

using Parameters = std::map<std::string, std::vector<double>>;

/// Numbers and widths of the heads, and what else fields choose.
struct LinearSizes {
  std::size_t heads = 3, key_heads = 3, key_width = 4, value_width = 5;
  double epsilon = 1e-6, beta_scale = 1;
};

/// The layer by plain loops, of one row of the batch.
class Loops {
 public:
  Loops(const std::string& kind, Parameters parameters, const LinearSizes& sizes = {})
      : kind_(kind), of_(std::move(parameters)), sizes_(sizes) {}

  std::vector<double> operator()(const std::vector<double>& x, std::size_t T) const {
    const std::size_t C = x.size() / T, H = sizes_.heads, G = sizes_.key_heads, D = sizes_.key_width,
                      E = sizes_.value_width, P = 2 * G * D + H * E;
    std::vector<double> packed = product(x, C, "query_key_value.weight");
    if (kind_ != "gla") {
      const std::vector<double>& taps = of_.at("convolution.weight");
      std::vector<double> sums = packed;
      for (std::size_t t = 0; t < T; ++t) {
        for (std::size_t j = 0; j < taps.size() / P && j <= t; ++j)
          for (std::size_t i = 0; i < P; ++i) sums[t * P + i] += taps[j * P + i] * packed[(t - j) * P + i];
      }
      for (std::size_t i = 0; i < sums.size(); ++i) packed[i] = sums[i] / (1 + std::exp(-sums[i]));
    }
    const std::vector<double> decays = log_decays(x, C, H), gate = gates(x, C, E);
    const bool deltas = kind_ != "gla";
    const std::vector<double> beta = deltas ? product(x, C, "beta.weight") : std::vector<double>();
    std::vector<double> heads(T * H * E);
    for (std::size_t h = 0; h < H; ++h) {
      const std::size_t g = h / (H / G);
      std::vector<double> S(D * E);
      for (std::size_t t = 0; t < T; ++t) {
        std::vector<double> q(&packed[t * P + g * D], &packed[t * P + g * D] + D),
            k(&packed[t * P + (G + g) * D], &packed[t * P + (G + g) * D] + D);
        if (deltas) q = unit(q), k = unit(k);
        double squares = 0;
        for (std::size_t e = 0; e < E; ++e) {
          double recalled = 0, y = 0;
          for (std::size_t d = 0; d < D; ++d) {
            const std::size_t count = decays.size() / (T * H);
            const double a = count == 0 ? 1 : std::exp(decays[(t * H + h) * count + (count > 1 ? d : 0)]);
            S[d * E + e] *= a;
            recalled += k[d] * S[d * E + e];
          }
          const double value = packed[t * P + 2 * G * D + h * E + e];
          const double update =
              deltas ? (value - recalled) * sizes_.beta_scale / (1 + std::exp(-beta[t * H + h])) : value;
          for (std::size_t d = 0; d < D; ++d) {
            S[d * E + e] += k[d] * update;
            y += q[d] * S[d * E + e] / std::sqrt(static_cast<double>(D));
          }
          heads[(t * H + h) * E + e] = y;
          squares += y * y;
        }
        for (std::size_t e = 0; e < E; ++e) {
          const std::size_t at = (t * H + h) * E + e;
          heads[at] *=
              of_.at("norm.weight")[e] / std::sqrt(squares / static_cast<double>(E) + sizes_.epsilon);
          if (!gate.empty()) heads[at] *= gate[at];
        }
      }
    }
    return product(heads, H * E, "output.weight");
  }

 private:
  /// x W^T for rows of `width` numbers.
  std::vector<double> product(const std::vector<double>& x, std::size_t width,
                              const std::string& name) const {
    const std::vector<double>& weight = of_.at(name);
    const std::size_t rows = x.size() / width, outputs = weight.size() / width;
    std::vector<double> y(rows * outputs);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t o = 0; o < outputs; ++o)
        for (std::size_t c = 0; c < width; ++c)
          y[i * outputs + o] += x[i * width + c] * weight[o * width + c];
    }
    return y;
  }
  static std::vector<double> unit(std::vector<double> x) {
    double squares = 1e-6;
    for (const double v : x) squares += v * v;
    for (double& v : x) v /= std::sqrt(squares);
    return x;
  }
  std::vector<double> log_decays(const std::vector<double>& x, std::size_t C, std::size_t H) const {
    if (kind_ == "deltanet") return {};
    std::vector<double> g = x;
    std::size_t width = C;
    if (kind_ != "gated_deltanet") {
      g = product(x, C, "decay_down.weight");
      width = of_.at("decay_down.weight").size() / C;
    }
    g = product(g, width, "decay_up.weight");
    const std::vector<double>& offsets = of_.at("decay_offset");
    for (std::size_t i = 0; i < g.size(); ++i) {
      const std::size_t column = i % offsets.size(), head = column / (offsets.size() / H);
      const double rate = kind_ == "gla" ? 1.0 / 16 : std::exp(of_.at("decay_rate")[head]);
      g[i] = -rate * std::log1p(std::exp(g[i] + offsets[column]));
    }
    return g;
  }
  std::vector<double> gates(const std::vector<double>& x, std::size_t C, std::size_t E) const {
    if (kind_ == "deltanet") return {};
    const bool low = kind_ == "kda";
    std::vector<double> gate =
        low ? product(product(x, C, "gate_down.weight"), E, "gate.weight") : product(x, C, "gate.weight");
    for (double& v : gate) v = (low ? 1 : v) / (1 + std::exp(-v));
    return gate;
  }

  std::string kind_;
  Parameters of_;
  LinearSizes sizes_;
};

void check_loops(const std::string& kind, LinearAttention& layer, const LinearSizes& sizes = {}) {
  Parameters parameters;
  for (auto& [name, parameter] : layer.named_parameters())
    parameters[name] = parameter.value().to_vector<double>();
  const Tensor x = random_values({1, 9, 6}, 3);
  const std::vector<double> y = Loops(kind, parameters, sizes)(x.to_vector<double>(), 9);
  CHECK_BELOW(relative_error(layer(x, x, causal_context()), Tensor::from(y, {1, 9, 7})), 1e-12);
}

}  // namespace

TEST_CASE("queries, keys and values are parts of the rows of their common matrix") {
  for (const char* kind : kLinearKinds) {
    Generator random(test_seed(1));
    LinearAttention layer(config_of(kind), random);
    CHECK(layer.row_parts() ==
          std::map<std::string, std::vector<Index>>{{"query_key_value.weight", {12, 12, 15}}});
  }
}

TEST_CASE("every kind agrees with plain loops over its formula") {
  for (const char* kind : kLinearKinds) {
    CAPTURE(kind);
    auto layer = random_module<LinearAttention>(config_of(kind));
    check_loops(kind, layer);
  }
}

TEST_CASE("states may have heads of their own, and share those of queries and keys") {
  for (const char* kind : kLinearKinds) {
    CAPTURE(kind);
    AttentionConfig config = config_of(kind);
    config.own = {{"state_heads", 6},
                  {"state_key_heads", 2},
                  {"state_key_width", 3},
                  {"state_value_width", 2},
                  {"state_norm_epsilon", 0.25}};
    LinearSizes sizes{6, 2, 3, 2, 0.25};
    if (kind != std::string("gla")) config.own["beta_scale"] = sizes.beta_scale = 2;
    auto layer = random_module<LinearAttention>(config);
    CHECK(layer.row_parts().at("query_key_value.weight") == std::vector<Index>{6, 6, 12});
    check_loops(kind, layer, sizes);
    const Tensor x = random_values({1, 9, 6}, 3);
    check_gradients(kind, gradcheck_module(layer, {{"x", x}}, [&] { return layer(x, x, causal_context()); }));
    const auto cache = make_cache({}, layer.cache_widths());
    const Tensor whole = layer(x, x, causal_context());
    TensorList steps;
    for (Index t = 0; t < 9; ++t) {
      const Tensor token = slice(x, 1, t, 1);
      if (t == 5) {  // a call that is refused leaves no trace
        Tape tape;
        CHECK_THROWS_AS(layer(token, token, causal_context(cache.get())), TapeError);
      }
      steps.push_back(layer(token, token, causal_context(cache.get())));
    }
    CHECK_BELOW(relative_error(concat(steps, 1), whole), 1e-12);
    config.own["state_key_heads"] = 4;
    CHECK(
        message_of<Error>([&] { config.check(); }) ==
        std::string("[attention] the heads of a state must be a multiple of its key heads; got attention=") +
            kind + ", state_heads=6, state_key_heads=4; try state_key_heads=0");
  }
}

TEST_CASE("options that a state cannot support are refused by name") {
  const auto layer = random_module<LinearAttention>(config_of("kda"));
  const Tensor x = random_values({2, 3, 6}, 3), other = random_values({2, 3, 6}, 4);
  CHECK(refusal(layer, x, [](AttentionContext& c) { c.causal = false; }) ==
        "[linear_attention] a token knows only those before it; got causal=false; try causal=true");
  CHECK(refusal(layer, x,
                [](AttentionContext& c) {
                  c.key_mask = Tensor::full({2, 3}, 1, DType::boolean);
                }) ==
        "[linear_attention] a state takes in every token, so the only mask is the causal one; got "
        "key_mask=bool[2,3]; try padding behind the last real token, which none of them sees");
  CHECK(refusal(layer, x, [](AttentionContext& c) { c.window_before = 2; }) ==
        "[linear_attention] a state takes in every token, so the only mask is the causal one; got a window; "
        "try attention=mha");
  Tensor weights;
  CHECK(refusal(layer, x, [&](AttentionContext& c) { c.weights = &weights; }) ==
        "[linear_attention] a state has no attention weights; got a tensor for them; try attention=mha");
  CHECK(message_of<Error>([&] { layer(x, other, causal_context()); }) ==
        "[linear_attention] query and memory must be the same tensor; got query=f64[2,3,6], "
        "memory=f64[2,3,6]; try attention=mha");
  const auto keys = make_cache({}, {4, 4});
  CHECK(message_of<Error>([&] { layer(x, x, causal_context(keys.get())); }) ==
        "[linear_attention] the cache must hold a state; try make_cache() with cache_widths()");
  const auto cache = make_cache({}, layer.cache_widths());
  const Tape tape;
  CHECK_THROWS_AS(layer(x, x, causal_context(cache.get())), TapeError);
}

TEST_CASE("options of keys or of weights are refused by name") {
  AttentionConfig config = config_of("gla");
  config.cross = true;
  CHECK(message_of<Error>([&] { config.check(); }) ==
        "[attention] a state is made of the tokens that read it, and attends to no other memory; got "
        "attention=gla, cross=true; try attention=mha");
  config = config_of("kda");
  config.dropout = 0.5;
  CHECK(message_of<Error>([&] { config.check(); }) ==
        "[attention] a state has no weights to drop; got attention=kda, dropout=0.5; try attention=mha");
  config = config_of("gla");
  config.rotary = true;
  CHECK(message_of<Error>([&] { config.check(); }).find("[attention] gated linear attention cannot rotate") ==
        0);
  config = config_of("deltanet");
  config.own["decay_rank"] = 2;
  CHECK(message_of<Error>([&] { config.check(); }) ==
        "[attention] decay_rank is for gla, kda; got attention=deltanet, decay_rank=2; try leaving it out");
}

TEST_CASE("decays learn in f32 wherever their offsets are") {
  const Tensor x = random_values({2, 5, 6}, 3);
  for (const char* kind : {"gla", "gated_deltanet", "kda"}) {
    for (const double offset : {-30.0, -17.0, -10.0, 0.0, 10.0}) {
      CAPTURE(kind);
      CAPTURE(offset);
      const auto gradient = [&](DType type) {
        LinearAttention layer = random_module<LinearAttention>(config_of(kind));
        layer.to(type);
        Parameter up = parameter_of(layer, "decay_up.weight"), offsets = parameter_of(layer, "decay_offset");
        up.set_value(up.value() * 0.0);
        offsets.set_value(affine(offsets.value(), 0, offset));
        const Tensor inputs = x.to(type);
        Tape tape;
        tape.backward(sum(layer(inputs, inputs, causal_context())));
        return offsets.gradient();
      };
      // Roundings, a hundred times as large where terms cancel; 1 where f32 loses the decay.
      CHECK_BELOW(relative_error(gradient(DType::f32), gradient(DType::f64)), 1e-3);
    }
  }
}

TEST_CASE("rates and offsets begin spread over the heads, so that some remember for long") {
  Generator random(test_seed(1));
  LinearAttention layer(config_of("gated_deltanet"), random);
  const Tensor rates = parameter_of(layer, "decay_rate"), offsets = parameter_of(layer, "decay_offset");
  CHECK(rates.at(0) == 0);
  CHECK(rates.at(2) == doctest::Approx(std::log(16)));
  CHECK(std::log1p(std::exp(offsets.at(0))) == doctest::Approx(0.001));
  CHECK(std::log1p(std::exp(offsets.at(2))) == doctest::Approx(0.1));
}
