#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/attention/caches/state_cache.h>
#include <tapeformer/nn/attention/linear_attention.h>
#include <tapeformer/tests/nn/module_case.h>

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

/// Numbers and widths of the heads, and what else fields choose.
struct LinearSizes {
  Index heads = 3, key_heads = 3, key_width = 4, value_width = 5;
  double epsilon = 1e-6, beta_scale = 1;
};

/// The layer with parameters p by its recurrence, token by token, in plain operations.
Tensor by_recurrence(const std::string& kind, const std::map<std::string, Tensor>& p,
                     const LinearSizes& sizes, const Tensor& x) {
  const Index B = x.size(0), T = x.size(1), H = sizes.heads, G = sizes.key_heads, D = sizes.key_width,
              E = sizes.value_width, P = 2 * G * D + H * E;
  const bool deltas = kind != "gla";
  const auto times = [&](const Tensor& input, const char* name) {
    return matmul(input, transposed(p.at(name + std::string(".weight"))));
  };
  Tensor packed_btp = times(x, "query_key_value");
  if (deltas) {
    const Tensor &taps = p.at("convolution.weight"), before = packed_btp;
    for (Index j = 0; j < taps.size(0) / P && j < T; ++j) {
      const Tensor earlier = concat({Tensor::zeros({B, j, P}, DType::f64), slice(before, 1, 0, T - j)}, 1);
      packed_btp = packed_btp + earlier * slice(taps, 0, j * P, P);
    }
    packed_btp = silu(packed_btp);
  }
  const auto heads_of = [&](Index from, Index count, Index width) {
    const Tensor part = reshape(slice(packed_btp, 2, from, count * width), {B, T, count, 1, width});
    return reshape(broadcast_to(part, {B, T, count, H / count, width}), {B, T, H, width});
  };
  const auto unit = [&](const Tensor& y) { return deltas ? y / sqrt(sum(y * y, {-1}, true) + 1e-6) : y; };
  const Tensor query_bthd = unit(heads_of(0, G, D)) * (1 / std::sqrt(static_cast<double>(D))),
               key_bthd = unit(heads_of(G * D, G, D)), value_bthe = heads_of(2 * G * D, H, E);
  Tensor decay, beta_bth1;
  if (kind != "deltanet") {
    const Tensor up = times(kind == "gated_deltanet" ? x : times(x, "decay_down"), "decay_up");
    const Tensor steps = reshape(softplus(up + p.at("decay_offset")), {B, T, H, up.size(2) / H});
    decay = exp(deltas ? steps * -exp(reshape(p.at("decay_rate"), {H, 1})) : steps * (-1.0 / 16));
  }
  if (deltas) beta_bth1 = reshape(sigmoid(times(x, "beta")) * sizes.beta_scale, {B, T, H, 1});
  Tensor state_bhde = Tensor::zeros({B, H, D, E}, DType::f64);
  TensorList rows;
  for (Index t = 0; t < T; ++t) {
    const auto column = [&](const Tensor& y) { return reshape(slice(y, 1, t, 1), {B, H, y.size(3), 1}); };
    if (decay.defined()) state_bhde = state_bhde * column(decay);
    const Tensor key_bhd1 = column(key_bthd);
    Tensor update_bh1e = reshape(slice(value_bthe, 1, t, 1), {B, H, 1, E});
    if (deltas) update_bh1e = (update_bh1e - sum(key_bhd1 * state_bhde, {2}, true)) * column(beta_bth1);
    state_bhde = state_bhde + key_bhd1 * update_bh1e;
    rows.push_back(reshape(sum(column(query_bthd) * state_bhde, {2}), {B, 1, H, E}));
  }
  const Tensor read = concat(rows, 1);
  const Tensor normed = read / sqrt(mean(read * read, {-1}, true) + sizes.epsilon) * p.at("norm.weight");
  Tensor y = reshape(normed, {B, T, H * E});
  if (kind == "kda") y = y * sigmoid(times(times(x, "gate_down"), "gate"));
  if (kind == "gla" || kind == "gated_deltanet") y = y * silu(times(x, "gate"));
  return times(y, "output");
}

/// Compares a layer's output and gradients with those of its recurrence.
void check_recurrence(const std::string& kind, LinearAttention& layer, const LinearSizes& sizes = {}) {
  const Tensor x = random_values({2, 9, 6}, 3);
  check_near(output_and_gradients(layer, {{"x", x}}, [&] { return layer(x, x, causal_context()); }),
             output_and_gradients(layer, {{"x", x}},
                                  [&] { return by_recurrence(kind, parameters_of(layer), sizes, x); }),
             1e-11);
}

}  // namespace

TEST_CASE("every kind does what its recurrence says, with states of its own heads and shared keys too") {
  for (const char* kind : kLinearKinds) {
    CAPTURE(kind);
    AttentionConfig config = config_of(kind);
    auto plain = random_module<LinearAttention>(config);
    check_recurrence(kind, plain);
    config.own = {{"state_heads", 6},
                  {"state_key_heads", 2},
                  {"state_key_width", 3},
                  {"state_value_width", 2},
                  {"state_norm_epsilon", 0.25}};
    LinearSizes sizes{6, 2, 3, 2, 0.25};
    if (kind != std::string("gla")) config.own["beta_scale"] = sizes.beta_scale = 2;
    auto layer = random_module<LinearAttention>(config);
    CHECK(layer.row_parts() ==
          std::map<std::string, std::vector<Index>>{{"query_key_value.weight", {6, 6, 12}}});
    check_recurrence(kind, layer, sizes);
    const Tensor x = random_values({1, 9, 6}, 3);
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
  const auto refused = [](const char* kind, const std::function<void(AttentionConfig&)>& change) {
    AttentionConfig config = config_of(kind);
    change(config);
    return message_of<Error>([&] { config.check(); });
  };
  CHECK(refused("gla", [](auto& c) { c.cross = true; }) ==
        "[attention] a state is made of the tokens that read it, and attends to no other memory; got "
        "attention=gla, cross=true; try attention=mha");
  CHECK(refused("kda", [](auto& c) { c.dropout = 0.5; }) ==
        "[attention] a state has no weights to drop; got attention=kda, dropout=0.5; try attention=mha");
  const std::string said = refused("gla", [](auto& c) { c.rotary = true; });
  CHECK(said.find("[attention] gated linear attention cannot rotate") == 0);
  CHECK(refused("deltanet", [](auto& c) { c.own["decay_rank"] = 2; }) ==
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
  auto layer = fresh_module<LinearAttention>(config_of("gated_deltanet"));
  const Tensor rates = parameter_of(layer, "decay_rate"), offsets = parameter_of(layer, "decay_offset");
  CHECK(rates.at(0) == 0);
  CHECK(rates.at(2) == doctest::Approx(std::log(16)));
  CHECK(std::log1p(std::exp(offsets.at(0))) == doctest::Approx(0.001));
  CHECK(std::log1p(std::exp(offsets.at(2))) == doctest::Approx(0.1));
}
