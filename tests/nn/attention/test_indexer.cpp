#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/nn/attention/indexer.h>
#include <tapeformer/nn/attention/latent.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/tests/nn/module_case.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tapeformer;

namespace {

constexpr Index kIndexRows = 2, kIndexTokens = 9;

AttentionConfig indexed_config(Index top_k, bool low_rank = true,
                               RotaryLayout layout = RotaryLayout::half_split) {
  AttentionConfig config("mla", 3);
  config.width = 8, config.key_width = 4, config.value_width = 5, config.latent_width = 6;
  config.query_latent_width = low_rank ? 5 : 0, config.rotary_width = 4;
  config.index_top_k = top_k, config.index_heads = 7, config.index_width = 6;
  config.index_rotary_layout = layout;
  return config;
}

/// The layer without its indexer, with the same parameters.
LatentAttention dense_twin(LatentAttention& layer, AttentionConfig config) {
  config.index_top_k = config.index_heads = config.index_width = 0;
  config.index_loss = AttentionConfig().index_loss;
  config.index_rotary_layout = AttentionConfig().index_rotary_layout;
  LatentAttention twin = random_module<LatentAttention>(config);
  for (const auto& [name, value] : parameters_of(layer))
    if (name.find("indexer.") != 0) set_parameter(twin, name, value);
  return twin;
}

/// The scores [B, T, S] of all pairs by the paper's formula, on plain operations.
Tensor formula_scores(LatentAttention& layer, const AttentionConfig& config, const Tensor& x) {
  const auto of = [&](const char* name) { return Tensor(parameter_of(layer, name)); };
  const auto times = [](const Tensor& input, const Tensor& weight) {
    return matmul(input, transposed(weight));
  };
  Tensor latent = x;
  if (config.query_latent_width > 0)
    latent = rms_norm(times(x, of("query_down.weight")), of("query_norm.weight"), 1e-6);
  const Index B = x.size(0), T = x.size(1), H = config.index_heads, D = config.index_width;
  RotaryConfig rotations;
  rotations.layout = config.index_rotary_layout;
  const RotaryAngles angles = rotary_angles(rotations, config.rotary_width, 0, T, x.dtype(), x.device());
  const Tensor query = rotary(reshape(times(latent, of("indexer.query.weight")), {B, T, H, D}), angles);
  const Tensor normed = layer_norm(times(x, of("indexer.key.weight")), of("indexer.key_norm.weight"),
                                   of("indexer.key_norm.bias"), 1e-6);
  const Tensor key = rotary(reshape(normed, {B, T, 1, D}), angles);
  const Tensor weights = times(x, of("indexer.weights.weight"));
  const Tensor products_bths =
      relu(matmul(query, transposed(reshape(key, {B, 1, T, D})), 1 / std::sqrt(static_cast<double>(D))));
  return sum(products_bths * reshape(weights, {B, T, H, 1}), {2}) * (1 / std::sqrt(static_cast<double>(H)));
}

/// bool [B, 1, T, S]: the causal choice of the largest scores; `gap` becomes the smallest distance between a
/// score that was chosen and one that was not.
Tensor formula_choice(const Tensor& scores, Index top_k, double& gap) {
  const Index B = scores.size(0), T = scores.size(1);
  const std::vector<double> all = scores.to(Device::cpu()).to_vector<double>();
  const Tensor pairs = Tensor::zeros({B, 1, T, T}).to(DType::boolean).to(Device::cpu());
  gap = std::numeric_limits<double>::infinity();
  for (Index row = 0; row < B * T; ++row) {
    std::vector<std::pair<double, Index>> seen;
    for (Index s = 0; s <= row % T; ++s) seen.emplace_back(-all[static_cast<std::size_t>(row * T + s)], s);
    std::sort(seen.begin(), seen.end());
    const auto count = std::min(seen.size(), static_cast<std::size_t>(top_k));
    if (count < seen.size()) gap = std::min(gap, seen[count].first - seen[count - 1].first);
    for (std::size_t i = 0; i < count; ++i) pairs.data<bool>()[row * T + seen[i].second] = true;
  }
  return pairs.to(scores.device());
}

/// An input whose choice neither rounding nor a step of a difference changes.
Tensor input_with_gap(LatentAttention& layer, const AttentionConfig& config, double least) {
  for (std::uint64_t seed = 1;; ++seed) {
    const Tensor x = random_values({kIndexRows, kIndexTokens, config.width}, seed);
    double gap = 0;
    formula_choice(formula_scores(layer, config, x), config.index_top_k, gap);
    if (gap > least) return x;
  }
}

/// The weights [B, H, T, S] of a layer's attention.
Tensor weights_of(const LatentAttention& layer, const Tensor& x,
                  AttentionContext context = causal_context()) {
  Tensor weights;
  context.weights = &weights;
  layer(x, x, context);
  return weights;
}

/// KL(p || softmax(scores)) over the pairs, a mean over tokens; weights [B, H, T, S] are attention's.
Tensor formula_loss(const Tensor& scores, const Tensor& pairs, const Tensor& weights) {
  const Index B = scores.size(0), T = scores.size(1);
  const Tensor chosen = reshape(pairs, {B, T, T}), shares = mean(weights, {1}),
               zero = Tensor::scalar_like(scores, 0),
               none = Tensor::scalar_like(scores, -std::numeric_limits<double>::infinity());
  const Tensor log_q = where(chosen, log_softmax(where(chosen, scores, none)), zero);
  const Tensor log_p = where(chosen, log(where(chosen, shares, zero + 1.0)), zero);
  return sum(shares * (log_p - log_q)) * (1 / static_cast<double>(B * T));
}

}  // namespace

TEST_CASE("with as many keys as there are, a layer attends to all, and its indexer learns from all") {
  const AttentionConfig config = indexed_config(kIndexTokens);
  LatentAttention layer = random_module<LatentAttention>(config), twin = dense_twin(layer, config);
  const Tensor x = random_values({kIndexRows, kIndexTokens, config.width}, 3);
  const Tensor expected = twin(x, x, causal_context());
  CHECK(same_bits(layer(x, x, causal_context()), expected));
  AttentionContext context = causal_context();
  LayerRecord record;
  context.record = &record;
  CHECK_BELOW(relative_error(layer(x, x, context), expected), 1e-12);
  CHECK(record.indexers == 1);
  double gap = 0;
  const Tensor scores = formula_scores(layer, config, x), pairs = formula_choice(scores, kIndexTokens, gap);
  const double loss = formula_loss(scores, pairs, weights_of(twin, x)).item();
  CHECK_BELOW(std::abs(record.index_losses.item() - loss), 1e-12);
}

TEST_CASE("the loss is the divergence from attention's weights of the chosen keys, by its own parameters") {
  for (const auto& [low_rank, layout] :
       {std::pair(true, RotaryLayout::half_split), {false, RotaryLayout::interleaved}}) {
    AttentionConfig config = indexed_config(3, low_rank, layout);
    config.index_loss = 0.5;
    LatentAttention layer = random_module<LatentAttention>(config), twin = dense_twin(layer, config);
    const Tensor x = input_with_gap(layer, config, 1e-6);
    double gap = 0;
    AttentionContext chosen = causal_context(), context = causal_context(), inspected = causal_context();
    chosen.mask = formula_choice(formula_scores(layer, config, x), config.index_top_k, gap);
    const Tensor weights = weights_of(twin, x, chosen);
    CHECK_BELOW(relative_error(weights_of(layer, x), weights), 1e-12);
    std::vector<Tensor> others{x}, indexer, expected;
    for (const auto& [name, parameter] : layer.named_parameters())
      (name.find("indexer.") == 0 ? indexer : others).push_back(parameter);
    CHECK(indexer.size() == 5);
    Tensor loss;
    {
      Tape tape;
      loss = formula_loss(formula_scores(layer, config, x), chosen.mask, weights) * 0.5;
      expected = tape.gradients(loss, indexer);
    }

    Tape tape;
    tape.watch(x);
    LayerRecord record, record_with_weights;
    context.record = &record;
    const Tensor y = layer(x, x, context);
    CHECK_BELOW(relative_error(y, twin(x, x, chosen)), 1e-12);
    CHECK_BELOW(deviation(record.index_losses.item(), loss.item()), 1e-12);
    const std::vector<Tensor> found = tape.gradients(record.index_losses, indexer);
    for (std::size_t i = 0; i < indexer.size(); ++i)
      CHECK_BELOW(relative_error(found[i], expected[i]), 1e-11);
    // No other parameter and no input gets a gradient of the loss, and the indexer none of the output.
    const auto check_zero = [](const Tensor& gradient) {
      CHECK(absolute_error(gradient, Tensor::zeros(gradient.shape(), DType::f64)) == 0);
    };
    for (const Tensor& gradient : tape.gradients(record.index_losses, others)) check_zero(gradient);
    for (const Tensor& gradient : tape.gradients(y, indexer, random_values(y.shape(), 5)))
      check_zero(gradient);
    inspected.record = &record_with_weights;
    CHECK_BELOW(relative_error(weights_of(layer, x, inspected), weights), 1e-12);
    REQUIRE(record_with_weights.index_losses.defined());
    CHECK(same_bits(record_with_weights.index_losses, record.index_losses));
  }
}

TEST_CASE("an indexer without a loss is frozen, and what does not fit it is named") {
  AttentionConfig config = indexed_config(3);
  config.index_loss = 0;
  LatentAttention layer = random_module<LatentAttention>(config);
  for (const auto& [name, parameter] : layer.named_parameters())
    CHECK(parameter.trainable() == (name.find("indexer.") != 0));
  const auto refusal = [](const std::function<void(AttentionConfig&)>& change) {
    AttentionConfig other = indexed_config(3);
    change(other);
    return message_of<Error>([&] { other.check(); });
  };
  CHECK(refusal([](AttentionConfig& c) { c.dropout = 0.1; }) ==
        "[attention] index_top_k excludes dropout of weights; got attention=mla, index_top_k=3, dropout=0.1; "
        "try attention_dropout=0");
  CHECK(refusal([](AttentionConfig& c) { c.index_width = 3; }) ==
        "[attention] an indexer rotates as many components as attention; got attention=mla, index_top_k=3, "
        "index_width=3, rotary_width=4; try index_width=4");
  CHECK(refusal([](AttentionConfig& c) { c = AttentionConfig("mha", 2), c.width = 8, c.index_top_k = 2; }) ==
        "[attention] index_top_k is for mla; got attention=mha, index_top_k=2; try index_top_k=0");
  AttentionConfig cross = indexed_config(3);
  cross.cross = true;
  CHECK(cross.resolved().index_top_k == 0);
}

TEST_CASE("a model adds the mean of its indexers' losses in training, and refuses checkpointing") {
  DecoderOnlyConfig config;
  config.vocabulary = 11, config.context = 8, config.layers = 2, config.width = 8, config.feed_forward = 12;
  config.attention = AttentionConfig("mla", 2);
  config.attention.index_top_k = 3, config.positions = PositionKind::rotary;
  DecoderOnly model = random_module<DecoderOnly>(config);
  const Tensor ids = random_ids({2, 8}, 11, 3), targets = random_ids({2, 8}, 11, 4);
  LayerRecord record;
  model.states(ids, {}, {}, &record);
  CHECK(record.indexers == 2);
  const double trained = model.loss(ids, targets).item();
  model.eval();
  const double measured = model.loss(ids, targets).item();
  CHECK_BELOW(std::abs(trained - measured - record.index_losses.item() / 2), 1e-12);
  CHECK(message_of<Error>([&] { model.recompute_layers(true); }) ==
        "[decoder_only] activation checkpointing needs indexers without a loss; got index_top_k=3, "
        "index_loss=1; try index_loss=0");
}
