#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/multi_head.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

using namespace tapeformer;

namespace {

constexpr Index kHeads = 4, kGroups = 2, kKeys = 6, kValues = 5;  // H, G, D, E

struct Variant {
  std::string name;
  std::function<void(AttentionConfig&)> change;
};

/// Every option alone, and all of them in two companies.
const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
      {"plain", [](AttentionConfig&) {}},
      {"rms", [](auto& c) { c.qk_norm = QkNorm::rms; }},
      {"joint", [](auto& c) { c.qk_norm = QkNorm::joint, c.qk_norm_epsilon = 1e-3; }},
      {"l2", [](auto& c) { c.qk_norm = QkNorm::l2; }},
      {"head gate", [](auto& c) { c.output_gate = OutputGate::head; }},
      {"element gate", [](auto& c) { c.output_gate = OutputGate::element; }},
      {"exclusive", [](auto& c) { c.exclusive = true; }},
      {"value residual", [](auto& c) { c.value_residual = true; }},
      {"rms, value residual, exclusive, gated",
       [](auto& c) {
         c.qk_norm = QkNorm::rms, c.output_gate = OutputGate::element;
         c.exclusive = c.value_residual = true;
       }},
      {"joint, value residual, exclusive, gated",
       [](auto& c) {
         c.qk_norm = QkNorm::joint, c.output_gate = OutputGate::head;
         c.exclusive = c.value_residual = true;
       }},
  };
  return all;
}

AttentionConfig config_of(const Variant& variant, bool rotary = true) {
  AttentionConfig config;
  config.kind = "gqa";
  config.width = 6, config.heads = kHeads, config.groups = kGroups;
  config.key_width = kKeys, config.value_width = kValues;
  config.rotary = rotary;
  variant.change(config);
  return config;
}

/// The input, and the first layer's values where the layer takes them.
struct Inputs {
  Tensor x, first;
  explicit Inputs(Index length, Index batch = 2)
      : x(random_values({batch, length, 6}, 3)), first(random_values({batch, length, kGroups, kValues}, 5)) {}
  AttentionContext context(const AttentionConfig& config, Index from, Index count) const {
    AttentionContext context;
    context.causal = true;
    if (config.value_residual) context.first_values = slice(first, 1, from, count);
    return context;
  }
};

/// The layer's output by its formulas, from its parameters, in operations that keep all weights.
Tensor by_formula(MultiHeadAttention& layer, const AttentionConfig& config, const Inputs& in) {
  const Index B = in.x.size(0), T = in.x.size(1), queries = kHeads * kKeys, keys = kGroups * kKeys;
  std::map<std::string, Tensor> p;
  for (const auto& [name, parameter] : layer.named_parameters()) p[name] = parameter.value();
  const Tensor packed = linear(in.x, p["query_key_value.weight"], p["query_key_value.bias"]);
  Tensor query = reshape(slice(packed, 2, 0, queries), {B, T, kHeads, kKeys}),
         key = reshape(slice(packed, 2, queries, keys), {B, T, kGroups, kKeys}),
         value = reshape(slice(packed, 2, queries + keys, kGroups * kValues), {B, T, kGroups, kValues});
  const double epsilon = config.qk_norm_epsilon;
  AttentionOptions options;
  options.causal = true;
  if (config.qk_norm == QkNorm::rms) {
    const auto normed = [&](const Tensor& x, const Tensor& gain) {
      return x / sqrt(mean(x * x, {-1}, true) + epsilon) * gain;
    };
    query = normed(query, p["query_norm.weight"]), key = normed(key, p["key_norm.weight"]);
  } else if (config.qk_norm == QkNorm::joint) {
    const auto normed = [&](const Tensor& x, const Tensor& gain) {
      const Tensor root = sqrt(mean(x * x, {-2, -1}, true) + epsilon);
      return x / root * reshape(gain, {x.size(2), kKeys});
    };
    query = normed(query, p["query_norm.weight"]), key = normed(key, p["key_norm.weight"]);
  } else if (config.qk_norm == QkNorm::l2) {
    const auto unit = [&](const Tensor& x) {
      return x / sqrt(sum(x * x, {-1}, true) + static_cast<double>(kKeys) * epsilon);
    };
    query = unit(query) * reshape(p["query_norm.weight"], {kHeads, 1}), key = unit(key);
    options.scale = 1;
  }
  if (config.value_residual) {
    const Tensor& factors = p["value_residual"];
    value = factors.at(0) * value + factors.at(1) * in.first;
  }
  std::vector<std::int32_t> places;
  for (Index t = 0; t < T; ++t) places.push_back(static_cast<std::int32_t>(t));
  const Tensor at = ids_of(places, {T});
  if (config.rotary) query = rotary(query, at, config.rotations), key = rotary(key, at, config.rotations);
  Tensor y = composed_attention(query, key, value, options);
  if (config.exclusive) {
    const Tensor own = reshape(
        broadcast_to(reshape(value, {B, T, kGroups, 1, kValues}), {B, T, kGroups, kHeads / kGroups, kValues}),
        y.shape());
    y = y - sum(y * own, {-1}, true) / sum(own * own, {-1}, true) * own;
  }
  if (config.output_gate != OutputGate::none)
    y = y * reshape(sigmoid(linear(in.x, p["gate.weight"], {})), {B, T, kHeads, -1});
  return linear(reshape(y, {B, T, kHeads * kValues}), p["output.weight"], p["output.bias"]);
}

}  // namespace

TEST_SUITE("nn/attention/multi_head variants") {
  TEST_CASE("norms, gates, value residuals and exclusive attention are those of the formulas") {
    for (const Variant& variant : variants()) {
      for (const bool rotary : {false, true}) {
        for (const Index length : {1, 31, 32, 33}) {
          CAPTURE(variant.name);
          CAPTURE(rotary);
          CAPTURE(length);
          const AttentionConfig config = config_of(variant, rotary);
          MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
          const Inputs in(length);
          const Tensor expected = by_formula(layer, config, in);
          CHECK_BELOW(relative_error(layer(in.x, in.x, in.context(config, 0, length)), expected), 1e-12);
        }
      }
    }
  }

  TEST_CASE("the oldest form of a layer, with matrices apart, gives the same") {
    for (const Variant& variant : variants()) {
      CAPTURE(variant.name);
      AttentionConfig config = config_of(variant);
      config.kind = "mha", config.groups = 0, config.heads = kGroups;
      MultiHeadAttention packed = random_module<MultiHeadAttention>(config);
      config.packed = false;
      MultiHeadAttention apart = random_module<MultiHeadAttention>(config);
      std::map<std::string, Tensor> p;
      for (const auto& [name, parameter] : apart.named_parameters()) p[name] = parameter.value();
      for (auto& [name, parameter] : packed.named_parameters()) {
        TensorList parts;
        for (const std::string& part : golden_parts(name)) parts.push_back(p.at(part));
        parameter.set_value(concat(parts, 0));
      }
      const Inputs in(9);
      const AttentionContext context = in.context(config, 0, 9);
      CHECK_BELOW(relative_error(apart(in.x, in.x, context), packed(in.x, in.x, context)), 1e-13);
    }
  }

  TEST_CASE("tokens that go on where a cache ends get what they get all at once, over 200 tokens") {
    const Index length = cached_tokens();
    const SingleThread guard;
    for (const Variant& variant : variants()) {
      const AttentionConfig config = config_of(variant);
      MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
      const Inputs in(length, 1);
      const Tensor whole = layer(in.x, in.x, in.context(config, 0, length));
      for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
        CAPTURE(variant.name);
        const auto cache = make_cache({kind, 0, 7}, layer.cache_widths());
        TensorList rows;
        for (Index from = 0; from < length;) {
          const Index count = from == 0 ? 5 : 1;
          AttentionContext context = in.context(config, from, count);
          context.cache = cache.get();
          const Tensor piece = slice(in.x, 1, from, count);
          rows.push_back(layer(piece, piece, context));
          from += count;
        }
        CHECK_BELOW(relative_error(concat(rows, 1), whole), 1e-12);
      }
    }
  }

  TEST_CASE("a layer that shares keys attends to those that another has made, cached or not") {
    for (const Variant& variant : variants()) {
      CAPTURE(variant.name);
      AttentionConfig config = config_of(variant);
      config.value_residual = false;
      MultiHeadAttention maker = random_module<MultiHeadAttention>(config);
      AttentionConfig shares = config;
      shares.shared_keys = true;
      MultiHeadAttention reader = random_module<MultiHeadAttention>(shares);
      std::map<std::string, Parameter> p;
      for (const auto& [name, parameter] : maker.named_parameters()) p.emplace(name, parameter);
      for (auto& [name, parameter] : reader.named_parameters()) {
        const bool is_query = name == "query.weight" || name == "query.bias";
        const Tensor& whole = p.at(is_query ? "query_key_value" + name.substr(5) : name).value();
        parameter.set_value(is_query ? slice(whole, 0, 0, kHeads * kKeys) : whole);
      }
      CHECK(reader.cache_widths().key == 0);
      const Inputs in(8);
      KeyValueHeads fresh;
      AttentionContext making = in.context(config, 0, 8), reading = making;
      making.fresh = &fresh;
      const Tensor whole = maker(in.x, in.x, making);
      reading.shared = fresh;
      CHECK_BELOW(relative_error(reader(in.x, in.x, reading), whole), 1e-13);
      const auto cache = make_cache({}, maker.cache_widths());
      for (Index t = 0; t < 8; t += 2) {
        AttentionContext step = in.context(config, t, 2);
        step.cache = cache.get(), step.fresh = &fresh;
        step.angles = {};
        const Tensor piece = slice(in.x, 1, t, 2);
        AttentionContext read = step;
        read.angles = maker.angles(piece, step);  // before the cache grows
        const Tensor made = maker(piece, piece, step);
        read.fresh = nullptr, read.shared = fresh;
        CHECK_BELOW(relative_error(reader(piece, piece, read), made), 1e-13);
        CHECK_BELOW(relative_error(made, slice(whole, 1, t, 2)), 1e-13);
      }
    }
  }

  TEST_CASE("gradients of both orders agree with differences for every option") {
    for (const Variant& variant : variants()) {
      const AttentionConfig config = config_of(variant);
      MultiHeadAttention layer = random_module<MultiHeadAttention>(config);
      const Inputs in(3);
      NamedTensors inputs{{"x", in.x}};
      AttentionContext context;
      context.causal = true;

      if (config.value_residual) context.first_values = in.first, inputs.emplace_back("first", in.first);
      check_gradients("multi_head " + variant.name,
                      gradcheck_module(
                          layer, inputs, [&] { return layer(in.x, in.x, context); }, second_order(12)));
    }
  }

  TEST_CASE("gradients reach the keys and values that layers share") {
    AttentionConfig config = config_of(variants()[1]);
    MultiHeadAttention maker = random_module<MultiHeadAttention>(config);
    config.shared_keys = config.exclusive = true;
    MultiHeadAttention reader = random_module<MultiHeadAttention>(config);
    const Inputs in(3);
    check_gradients("multi_head shared keys", gradcheck_module(
                                                  maker, {{"x", in.x}},
                                                  [&] {
                                                    KeyValueHeads fresh;
                                                    AttentionContext context;
                                                    context.causal = true, context.fresh = &fresh;
                                                    const Tensor y = maker(in.x, in.x, context);
                                                    context.fresh = nullptr, context.shared = fresh;
                                                    return reader(y, y, context);
                                                  },
                                                  second_order(8)));
  }

  TEST_CASE("options that do not fit each other or the call are refused") {
    Generator random(test_seed(1));
    AttentionConfig config = config_of(variants()[0]);
    config.shared_keys = config.value_residual = true;
    CHECK(message_of<Error>([&] { config.check(); }) ==
          "[attention] a layer with shared_keys has no values of its own; got attention=gqa, "
          "shared_keys=true, value_residual=true; try value_residual=false");
    config = config_of(variants()[0]);
    config.exclusive = true;
    config.cross = true;
    CHECK_FALSE(config.resolved().exclusive);
    const Inputs in(3);
    const auto refusal = [&](const AttentionConfig& of, const AttentionContext& context) {
      const MultiHeadAttention layer = random_module<MultiHeadAttention>(of);
      return message_of<Error>([&] { layer(in.x, in.x, context); });
    };
    config = config_of(variants()[7]);
    CHECK(refusal(config, {}) == "[multi_head] value_residual needs first_values in the context");
    config = config_of(variants()[0]);
    AttentionContext context;
    context.first_values = in.first;
    CHECK(refusal(config, context) == "[multi_head] first_values in the context need value_residual");
    config.shared_keys = true;
    CHECK(refusal(config, {}) == "[multi_head] shared_keys needs shared keys and values in the context");
    CHECK(message_of<Error>([] { qk_norm("layer"); }) == "qk_norm must be none, rms, joint or l2; got layer");
    CHECK(message_of<Error>([] { output_gate("all"); }) ==
          "output_gate must be none, head or element; got all");
    CHECK(qk_norm("true") == QkNorm::rms);
    CHECK(qk_norm("false") == QkNorm::none);
  }
}
