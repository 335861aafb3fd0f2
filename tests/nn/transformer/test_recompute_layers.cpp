#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/nn/generation/language_case.h>

using namespace tapeformer;

namespace {

/// The result of a training: losses, gradients of the last step, weights, dropout draws.
struct Trace {
  std::vector<Tensor> tensors;
  std::vector<std::uint64_t> draws;
  Index saved_bytes = 0;  // at the end of the first forward pass
};

/// Two steps of two batches each, or one under the sanitizers; loss(batch) is recorded.
Trace train(Module& model, const std::function<Tensor(int)>& loss_of) {
  Trace trace;
  AdamW optimizer(model.parameters());
  for (int step = 0; step < (is_sanitized() ? 1 : 2); ++step) {
    optimizer.clear_gradients();
    for (int batch = 0; batch < 2; ++batch) {
      Tape tape;
      const Tensor loss = loss_of(2 * step + batch);
      if (trace.tensors.empty()) trace.saved_bytes = tape.memory().saved_bytes;
      trace.tensors.push_back(loss);
      tape.backward(loss);
    }
    clip_gradient_norm(optimizer.parameters(), 1.0);
    optimizer.step(1e-2);
  }
  for (const Parameter& parameter : model.parameters()) {
    trace.tensors.push_back(parameter.value());
    if (parameter.trainable()) trace.tensors.push_back(parameter.gradient());
  }
  for (const auto& [name, counter] : model.named_counters()) trace.draws.push_back(*counter);
  return trace;
}

void check_same(const Trace& plain, const Trace& recomputed) {
  REQUIRE(plain.tensors.size() == recomputed.tensors.size());
  Index different = 0;
  for (std::size_t i = 0; i < plain.tensors.size(); ++i)
    different += same_bits(plain.tensors[i], recomputed.tensors[i]) ? 0 : 1;
  CHECK(different == 0);
  CHECK(plain.draws == recomputed.draws);
  CHECK(recomputed.saved_bytes < plain.saved_bytes);
}

Trace train_language_model(const DecoderOnlyConfig& config, DType type, bool recompute,
                           const HeadLossConfig& head) {
  auto model = fresh_module<DecoderOnly>(config);
  model.to(type);
  model.recompute_layers(recompute);
  const Tensor prefix = config.prefix ? ids_of({3, 1, 7}, {3}) : Tensor();
  return train(model, [&, prefix](int batch) {
    const auto seed = static_cast<std::uint64_t>(batch);
    return model.loss(random_ids({3, 9}, config.vocabulary, seed),
                      random_ids({3, 9}, config.vocabulary, seed + 50), prefix, head);
  });
}

void check_recomputed(const DecoderOnlyConfig& config, DType type, const HeadLossConfig& head = {}) {
  check_same(train_language_model(config, type, false, head), train_language_model(config, type, true, head));
}

EncoderDecoderConfig translation_config(bool norm_first) {
  EncoderDecoderConfig config;
  config.layer = small_layer_config(norm_first, 0.2);
  config.source_vocabulary = 11, config.target_vocabulary = 12;
  config.encoder_layers = 2, config.decoder_layers = 3;
  config.max_length = 12;
  return config;
}

struct TranslationCase {
  Tensor source = random_ids({3, 8}, 11, 1), mask = real_tokens({8, 3, 6}, 8),
         target = random_ids({3, 7}, 12, 2), labels = random_ids({3, 7}, 12, 3);
  Tensor loss(const EncoderDecoder& model) const {
    return cross_entropy(model(source, mask, target), labels);
  }
};

}  // namespace

TEST_CASE("a language model trains to the same bits, whatever its attention and positions") {
  for (const LanguageKind& kind : language_kinds()) {
    INFO(kind.name());
    DecoderOnlyConfig config = language_config(kind, 9);
    config.attention.dropout = config.embedding_dropout = config.residual_dropout = 0.2;
    config.experts.balance_loss = 0;
    const bool chooses =
        config.attention.moba_block > 0 || kind.attention == "nsa" || config.attention.index_top_k > 0;
    if (chooses) config.attention.dropout = 0;
    if (config.attention.index_top_k > 0) config.attention.index_loss = 0;
    check_recomputed(config, DType::f64);
  }
}

TEST_CASE("losses of routers, which are not in the output of a layer, are refused") {
  DecoderOnlyConfig config = language_config({"mha", PositionKind::learned, false, "", 0, 3}, 9);
  auto model = fresh_module<DecoderOnly>(config);
  model.recompute_layers(false);
  EncoderDecoderConfig translation = translation_config(true);
  translation.layer.experts = config.experts;
  auto translator = fresh_module<EncoderDecoder>(translation);
  CHECK(message_of<Error>([&] { translator.recompute_layers(true); }).find("[encoder_decoder] activation") ==
        0);
  CHECK(message_of<Error>([&] { model.recompute_layers(true); }) ==
        "[decoder_only] activation checkpointing needs routers without losses; got balance_loss=0.01, "
        "router_z_loss=0; try 0 for both");
}

TEST_CASE("a record has each router once, after the backward pass too") {
  DecoderOnlyConfig config = language_config({"mha", PositionKind::learned, false, "", 0, 3}, 9);
  config.experts.balance_loss = 0;
  DecoderOnly model = language_model(config);
  model.recompute_layers(true);
  LayerRecord record;
  Tape tape;
  tape.backward(sum(model.states(random_ids({2, 6}, config.vocabulary, 4), {}, {}, &record)));
  CHECK(record.shares.size() == 2);
}

TEST_CASE("the same bits in single precision, of widths that fill a kernel and with the fused head") {
  DecoderOnlyConfig config = language_config({"mha", PositionKind::learned}, 9);
  config.width = 136, config.feed_forward = 0, config.layers = 3;
  config.attention.dropout = config.embedding_dropout = config.residual_dropout = 0.1;
  for (const bool fused : {false, true}) check_recomputed(config, DType::f32, {fused, 0});
  config.attention.qk_norm = QkNorm::rms;
  config.short_convolution = 4;
  config.logit_softcap = 5;
  check_recomputed(config, DType::f32);
  config.value_residual = true, config.attention.output_gate = OutputGate::element;
  check_recomputed(config, DType::f32);
  config.value_residual = false;
  config.kv_sharing = 2, config.window = 4;
  check_recomputed(config, DType::f32);
  config.gated = true, config.activation = Unary::silu, config.norm = NormKind::rms;
  check_recomputed(config, DType::f32);
}

TEST_CASE("an encoder and a decoder train to the same bits, and the memory gets its gradient") {
  const TranslationCase c;
  for (const DType type : {DType::f32, DType::f64}) {
    for (const bool norm_first : {false, true}) {
      Trace traces[2];
      for (const bool recompute : {false, true}) {
        auto model = fresh_module<EncoderDecoder>(translation_config(norm_first));
        model.to(type);
        model.recompute_layers(recompute);
        traces[recompute] = train(model, [&](int) { return c.loss(model); });
      }
      check_same(traces[0], traces[1]);
    }
  }
}

TEST_CASE("a layer keeps its input and nothing else") {
  DecoderOnlyConfig config = language_config({"mha", PositionKind::rotary}, 9);
  const Tensor ids = random_ids({3, 9}, config.vocabulary, 1);
  const auto saved = [&](Index layers, bool recompute) {
    config.layers = layers;
    auto model = fresh_module<DecoderOnly>(config);
    model.recompute_layers(recompute);
    Tape tape;
    const Tensor states_btc = model.states(ids);
    const TapeMemory memory = tape.memory();
    return memory.saved_bytes - memory.parameter_bytes;
  };
  const Index states = 3 * 9 * config.width * bytes_of(DType::f32);
  CHECK(saved(5, true) - saved(3, true) == 2 * states);
  CHECK(saved(5, false) - saved(3, false) > 20 * states);
}

TEST_CASE("it can be turned off again, and does nothing where no tape records") {
  DecoderOnlyConfig config = language_config({"mha", PositionKind::learned}, 9);
  DecoderOnly model = language_model(config);
  const Tensor ids = random_ids({2, 6}, config.vocabulary, 4);
  const auto nodes = [&] {
    Tape tape;
    const Tensor logits = model(ids);
    return tape.memory().nodes;
  };
  const Index all = nodes();
  const Tensor logits = model(ids);
  model.recompute_layers(true);
  CHECK(nodes() < all - 10);
  CHECK(same_bits(model(ids), logits));
  LayerCaches caches = model.start();
  Tape tape;
  const Tensor states_btc = model.states(ids, caches);
  CHECK(tape.memory().nodes == 0);
  CHECK_BELOW(relative_error(model.logits(states_btc), logits), 1e-12);
  model.recompute_layers(false);
  CHECK(nodes() == all);
}

TEST_CASE("cross-attention's weights, which outlive their layer, are recorded as usual") {
  EncoderDecoder model = random_module<EncoderDecoder>(translation_config(true));
  model.eval();
  const TranslationCase c;
  std::vector<Tensor> weights[2];
  Tensor gradients[2];
  for (const bool recompute : {false, true}) {
    model.recompute_layers(recompute);
    Tape tape;
    const Tensor memory = model.encode(c.source, c.mask);
    const Tensor states = model.decode(c.target, memory, c.mask, &weights[recompute]);
    const Tensor loss = sum(states) + sum(weights[recompute][1] * weights[recompute][1]);
    gradients[recompute] = tape.gradients(loss, {memory})[0];
  }
  REQUIRE(weights[1].size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(weights[0][i], weights[1][i]));
  CHECK(same_bits(gradients[0], gradients[1]));
}
