#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/additive.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/gradcheck_table.h>

#include <doctest/doctest.h>

#include <algorithm>

using namespace tapeformer;

namespace {

AttentionConfig sized(Index width, Index memory_width, Index hidden_width, Index value_width) {
  AttentionConfig config;
  config.width = width, config.heads = 3, config.memory_width = memory_width;
  config.key_width = hidden_width, config.value_width = value_width;
  return config;
}

const AttentionConfig kWide = sized(6, 4, 5, 7);

/// The layer in plain loops. `may_attend(b, t, s)`.
template <class MayAttend>
Tensor layer_oracle(AdditiveAttention& layer, Index heads, const Tensor& query, const Tensor& memory,
                    const MayAttend& may_attend) {
  std::map<std::string, Tensor> p;
  for (const auto& [name, parameter] : layer.named_parameters()) p[name] = parameter.value();
  const auto affine = [&](const Tensor& x, Index row, const std::string& name, Index output) {
    const Index inputs = x.size(-1);
    double y = p.count(name + ".bias") > 0 ? p[name + ".bias"].at(output) : 0;
    for (Index i = 0; i < inputs; ++i)
      y += p[name + ".weight"].at(output * inputs + i) * x.at(row * inputs + i);
    return y;
  };
  const Index T = query.size(1), S = memory.size(1), D = p["score"].size(1),
              E = p["value.weight"].size(0) / heads;
  const Tensor mixed = Tensor::zeros({query.size(0), T, heads * E}, DType::f64);
  for (Index row = 0; row < query.size(0) * T; ++row) {
    const Index b = row / T;
    for (Index h = 0; h < heads; ++h) {
      double total = 0;
      for (Index s = 0; s < S; ++s) {
        if (!may_attend(b, row % T, s)) continue;
        double score = 0;
        for (Index d = h * D; d < (h + 1) * D; ++d)
          score += p["score"].at(d) *
                   std::tanh(affine(query, row, "query", d) + affine(memory, b * S + s, "key", d));
        total += std::exp(score);
        for (Index e = 0; e < E; ++e)
          mixed.data<double>()[(row * heads + h) * E + e] +=
              std::exp(score) * affine(memory, b * S + s, "value", h * E + e);
      }
      for (Index e = 0; e < E; ++e) mixed.data<double>()[(row * heads + h) * E + e] /= total > 0 ? total : 1;
    }
  }
  const Index C = query.size(2);
  return filled(query.shape(), [&](Index i) { return affine(mixed, i / C, "output", i % C); });
}

AttentionContext padded(const std::vector<Index>& lengths, Index longest) {
  AttentionContext context;
  context.key_mask = real_tokens(lengths, longest);
  return context;
}

}  // namespace

TEST_SUITE("nn/attention/additive") {
  TEST_CASE("it agrees with plain loops for widths that all differ, self and cross, under each mask") {
    auto cross = random_module<AdditiveAttention>(kWide);
    const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 8, 4}, 4);
    CHECK_BELOW(relative_error(cross(query, memory), layer_oracle(cross, 3, query, memory,
                                                                  [](Index, Index, Index) { return true; })),
                1e-13);
    const AttentionContext padding = padded({0, 8}, 8);
    CHECK_BELOW(
        relative_error(cross(query, memory, padding),
                       layer_oracle(cross, 3, query, memory, [](Index b, Index, Index) { return b == 1; })),
        1e-13);

    AttentionConfig config;
    config.width = 6, config.heads = 3, config.bias = false;
    auto self = random_module<AdditiveAttention>(config);
    AttentionContext causal;
    causal.causal = true;
    CHECK_BELOW(
        relative_error(self(query, query, causal),
                       layer_oracle(self, 3, query, query, [](Index, Index t, Index s) { return s <= t; })),
        1e-13);
    CHECK(self.parameter_count() == 4 * 36 + 6);
  }

  TEST_CASE("gradients of both orders agree with differences: self, causal, cross, padded, dropout") {
    AttentionConfig config;
    config.width = 6, config.heads = 3, config.key_width = 4;
    auto self = random_module<AdditiveAttention>(config);
    const Tensor x = random_values({2, 4, 6}, 3), memory = random_values({2, 5, 4}, 4);
    AttentionContext masks = padded({2, 4}, 4);
    masks.causal = true;
    const auto check = [&](const std::string& name, AdditiveAttention& layer,
                           const AttentionContext& context) {
      check_gradients(name, gradcheck_module(
                                layer, {{"x", x}}, [&] { return layer(x, x, context); }, second_order()));
    };
    check("additive self", self, {});
    check("additive causal padded", self, masks);
    config.dropout = 0.4;
    auto dropping = random_module<AdditiveAttention>(config);
    check("additive dropout", dropping, {});
    auto cross = random_module<AdditiveAttention>(kWide);
    const AttentionContext padding = padded({3, 5}, 5);
    check_gradients("additive cross padded", gradcheck_module(
                                                 cross, {{"query", x}, {"memory", memory}},
                                                 [&] { return cross(x, memory, padding); }, second_order()));
  }

  TEST_CASE("outputs and gradients are those of PyTorch") {
    Generator random(test_seed(1));
    AdditiveAttention self(sized(12, 0, 5, 7), random), cross(sized(12, 10, 5, 7), random);
    using In = std::map<std::string, Tensor>;
    for (const char* name : {"layer_self", "layer_causal"}) {
      check_layer_against_golden(
          name, self,
          [&](const In& in) {
            AttentionContext context;
            context.causal = std::string(name) == "layer_causal";
            return self(in.at("x"), in.at("x"), context);
          },
          "additive");
    }
    check_layer_against_golden(
        "layer_cross", cross,
        [&](const In& in) {
          AttentionContext context;
          context.key_mask = in.at("memory_may_attend");
          return cross(in.at("x"), in.at("memory"), context);
        },
        "additive");
  }

  TEST_CASE(
      "decoding with a cache gives what decoding without gives; a memory in the cache is not read again") {
    const Index T = 40;
    AttentionConfig config;
    config.width = 12, config.heads = 3, config.key_width = 5, config.value_width = 2;
    const auto layer = random_module<AdditiveAttention>(config);
    const Tensor x = random_values({2, T, 12}, 3), memory = random_values({2, 7, 12}, 4);
    AttentionContext causal;
    causal.causal = true;
    for (const CacheKind kind : {CacheKind::contiguous, CacheKind::paged}) {
      CacheConfig cached;
      cached.kind = kind, cached.block_size = 8;
      const auto cache = make_cache(cached, layer.cache_widths());
      AttentionContext context = causal;
      context.cache = cache.get();
      TensorList pieces;
      for (Index from = 0; from < T; from += from == 0 ? 5 : 1) {
        const Tensor piece = slice(x, 1, from, from == 0 ? 5 : 1);
        pieces.push_back(layer(piece, piece, context));
      }
      CHECK_BELOW(relative_error(concat(pieces, 1), layer(x, x, causal)), 1e-13);
      CHECK(cache->length() == T);
      CHECK(layer.cache_widths().key == 15);
      CHECK(layer.cache_widths().value == 6);

      const auto held = make_cache(cached, layer.cache_widths());
      AttentionContext padding = padded({3, 7}, 7);
      const Tensor whole = layer(x, memory, padding);
      padding.cache = held.get();
      CHECK_BELOW(relative_error(layer(slice(x, 1, 0, 2), memory, padding), slice(whole, 1, 0, 2)), 1e-13);
      CHECK_BELOW(relative_error(layer(slice(x, 1, 2, 4), {}, padding), slice(whole, 1, 2, 4)), 1e-13);
    }
  }

  TEST_CASE("weights are handed out; evaluation drops nothing") {
    AttentionConfig config = kWide;
    config.dropout = 0.5;
    auto layer = random_module<AdditiveAttention>(config);
    const Tensor query = random_values({2, 5, 6}, 3), memory = random_values({2, 8, 4}, 4);
    CHECK(relative_error(layer(query, memory), layer(query, memory)) > 0.01);
    layer.eval();
    Tensor weights;
    AttentionContext context;
    context.weights = &weights;
    CHECK_BELOW(relative_error(layer(query, memory, context), layer(query, memory)), 1e-13);
    REQUIRE(weights.shape() == Shape{2, 3, 5, 8});
    for (Index row = 0; row < 30; ++row) {
      double total = 0;
      for (Index s = 0; s < 8; ++s) total += weights.at(row * 8 + s);
      CHECK_BELOW(deviation(total, 1), 1e-14);
    }
  }

  TEST_CASE("parameters start Xavier uniform, biases zero") {
    Generator random(test_seed(1));
    AttentionConfig config;
    config.width = 64, config.heads = 4;
    AdditiveAttention layer(config, random);
    for (const auto& [path, parameter] : layer.named_parameters()) {
      const std::string& name = path;
      CAPTURE(name);
      const Tensor x = parameter;
      double largest = 0;
      for (Index i = 0; i < x.elements(); ++i) largest = std::max(largest, std::fabs(x.at(i)));
      const double bound = x.rank() == 1 ? 0 : name == "score" ? std::sqrt(6.0 / 17) : std::sqrt(6.0 / 128);
      CHECK(largest <= bound);
      CHECK(largest >= 0.9 * bound);
    }
    CHECK(layer.parameter_count() == 4 * 64 * 64 + 3 * 64 + 64);
  }

  TEST_CASE("an encoder and decoder with additive attention learn to turn a sequence round") {
    const SingleThread guard;
    constexpr Index kSymbols = 9, kLength = 5, kBatch = 32, kSteps = 250;
    EncoderDecoderConfig config;
    config.layer.attention.kind = "additive";
    config.layer.width = 32, config.layer.attention.heads = 2, config.layer.feed_forward = 64;
    config.source_vocabulary = config.target_vocabulary = kSymbols + 1;  // the last one begins a target
    config.encoder_layers = config.decoder_layers = 1;
    config.max_length = kLength;
    Generator random(test_seed(1));
    EncoderDecoder model(config, random);
    AdamW optimizer(model.parameters());
    double first = 0, last = 0;
    for (Index step = 0; step < kSteps; ++step) {
      const Tensor source = Tensor::empty({kBatch, kLength}, DType::i32);
      const Tensor inputs = Tensor::empty(source.shape(), DType::i32),
                   outputs = Tensor::empty(source.shape(), DType::i32);
      auto *from = source.data<std::int32_t>(), *in = inputs.data<std::int32_t>(),
           *out = outputs.data<std::int32_t>();
      for (Index i = 0; i < source.elements(); ++i)
        from[i] = static_cast<std::int32_t>(random.below(kSymbols));
      for (Index i = 0; i < source.elements(); ++i)
        out[i] = from[i / kLength * kLength + kLength - 1 - i % kLength];
      for (Index i = 0; i < source.elements(); ++i)
        in[i] = i % kLength == 0 ? static_cast<std::int32_t>(kSymbols) : out[i - 1];
      optimizer.clear_gradients();
      Tape tape;
      const Tensor loss = cross_entropy(model(source, {}, inputs), outputs);
      tape.backward(loss);
      optimizer.step(3e-3);
      if (step == 0) first = loss.item();
      last = loss.item();
    }
    CHECK(first > 2);
    CHECK_BELOW(last, 0.3);
  }

  TEST_CASE("what does not fit is refused by name") {
    Generator random(test_seed(1));
    AttentionConfig config;
    config.width = 10, config.heads = 3;
    CHECK(message_of<Error>([&] { AdditiveAttention(config, random); }) ==
          "[attention] width must be divisible by heads; got attention=additive, width=10, heads=3; try a "
          "width that is a multiple "
          "of the heads");
    config.key_width = 2, config.value_width = 4;
    CHECK(AdditiveAttention(config, random).parameter_count() == 66 + 60 + 132 + 130 + 6);
  }
}
