#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/nn/attention/attention_kind.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/nn/transformer/decoder_only.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/parameter_group.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/check_gradients.h>

using namespace tapeformer;

namespace {

DecoderOnlyConfig small_model(const std::string& attention, AdapterConfig adapter) {
  DecoderOnlyConfig config;
  config.vocabulary = 13, config.context = 12, config.layers = 2, config.width = 16;
  config.attention.kind = attention, config.attention.heads = 4;
  config.adapter = std::move(adapter);
  return config;
}

std::string first_path(Module& model, bool is_trained) {
  for (const auto& [name, parameter] : model.named_parameters())
    if (parameter.trainable() == is_trained) return name;
  return "none";
}

std::string refused_layers(const std::vector<std::string>& layers) {
  return message_of<Error>([&] { fresh_module<DecoderOnly>(small_model("mha", {2, 16, layers})); });
}

}  // namespace

TEST_CASE("an adapter adds a product of low rank to the weight, before the activation") {
  for (const std::optional<Unary> activation : {std::optional<Unary>(), std::optional(Unary::gelu)}) {
    Generator random(test_seed(1));
    Linear layer({5, 7, true, activation}, random);
    layer.to(DType::f64);
    layer.adapt(2, 1.5, random);
    randomise(layer, 2);
    const Tensor x = random_values({3, 5}, 4), weight = layer.weight().value();
    const Tensor a = parameter_of(layer, "lora_a").value(), b = parameter_of(layer, "lora_b").value();
    const Tensor whole = weight + matmul(b, a) * 1.5;
    CHECK_BELOW(absolute_error(layer.whole_weight(), whole), 1e-14);
    CHECK_BELOW(absolute_error(layer(x), linear(x, whole, layer.bias(), activation)), 1e-13);
    check_gradients("linear with an adapter", gradcheck_module(layer, {{"x", x}}, [&] { return layer(x); }));
  }
}

TEST_CASE("a model with new adapters computes the same, and only the adapters are trained") {
  Generator random(test_seed(1)), same(test_seed(1));
  DecoderOnly plain(small_model("mha", {}), random), adapted(small_model("mha", {2, 16, {"*"}}), same);
  const Tensor ids = random_ids({2, 6}, 13, 3);
  CHECK(absolute_error(plain(ids), adapted(ids)) == 0);
  CHECK(first_path(plain, false) == "none");
  CHECK(first_path(adapted, true) == "layers.0.attention.query_key_value.lora_a");
  AdamW optimizer(trainable(adapted.parameters()), {});
  for (int step = 0; step < 2; ++step) {
    Tape tape;
    optimizer.clear_gradients();
    tape.backward(adapted.loss(ids, ids));
    optimizer.step(0.1);
  }
  CHECK(absolute_error(plain(ids), adapted(ids)) > 1e-3);
  for (const auto& [name, parameter] : plain.named_parameters())
    CHECK(same_bits(parameter.value(), parameter_of(adapted, name).value()));
  for (const auto& [name, parameter] : adapted.named_parameters())
    if (is_of_adapter(name))
      CHECK(absolute_error(parameter.value(), Tensor::zeros(parameter.value().shape())) > 0);
}

TEST_CASE("patterns choose the layers with adapters, and the head has none") {
  const auto count = [](const std::vector<std::string>& layers) {
    auto model = fresh_module<DecoderOnly>(small_model("mha", {2, 16, layers}));
    std::size_t adapters = 0;
    for (const auto& [name, parameter] : model.named_parameters()) adapters += is_of_adapter(name) ? 1 : 0;
    return adapters / 2;
  };
  CHECK(count({"*"}) == 8);
  CHECK(count({"*.attention.*"}) == 4);
  CHECK(count({"layers.1.*", "*.up"}) == 5);
  CHECK(refused_layers({"*.up", "head"}) ==
        "[lora] a pattern of layers must match a linear layer; got head; the names are "
        "layers.0.attention.query_key_value, layers.0.attention.output, layers.0.feed_forward.up, "
        "layers.0.feed_forward.down, layers.1.attention.query_key_value, layers.1.attention.output, "
        "layers.1.feed_forward.up, layers.1.feed_forward.down");
  Generator random(test_seed(1));
  auto model = fresh_module<DecoderOnly>(small_model("mha", {}));
  const Index before = model.parameter_count();
  CHECK_THROWS_AS(add_adapters(model, {2, 16, {"*.up", "head"}}, random), Error);
  CHECK(model.parameter_count() == before);
}

TEST_CASE(
    "without its adapters a model has them in its weights, whatever the attention, with and without a "
    "cache") {
  const Tensor first_ids = random_ids({1, 4}, 13, 3), last_ids = random_ids({1, 2}, 13, 4);
  std::vector<std::int32_t> both = first_ids.to_vector<std::int32_t>();
  for (const std::int32_t id : last_ids.to_vector<std::int32_t>()) both.push_back(id);
  const Tensor ids = ids_of(both, {1, 6});
  for (const AttentionKind& kind : attention_kinds()) {
    if (!(kind.can & kCanModelLanguage)) continue;
    INFO(kind.name);
    auto adapted = random_module<DecoderOnly>(small_model(kind.name, {3, 2, {"*"}}));
    const Tensor logits = adapted(ids);
    LayerCaches caches = adapted.start();
    const Tensor first = adapted.logits(adapted.states(first_ids, caches)),
                 last = adapted.logits(adapted.states(last_ids, caches));
    const auto plain = without_adapters(std::move(adapted));
    CHECK_BELOW(absolute_error(plain(ids), logits), 1e-11);
    CHECK_BELOW(absolute_error(concat({first, last}, 1), logits), 1e-11);
  }
}

TEST_CASE("a model that computes in bf16 keeps the f32 weights when it loses its adapters") {
  Generator random(test_seed(1));
  DecoderOnly adapted(small_model("mha", {2, 16, {"*"}}), random);
  const Tensor weight = parameter_of(adapted, "layers.1.feed_forward.up.weight").value().clone();
  adapted.compute_in(DType::bf16);
  DecoderOnly plain = without_adapters(std::move(adapted));
  CHECK(same_bits(parameter_of(plain, "layers.1.feed_forward.up.weight").value(), weight));
  DecoderOnly other(small_model("mha", {}), random);
  other.compute_in(DType::bf16);
  copy_weights(plain, other);
  CHECK(same_bits(parameter_of(other, "layers.1.feed_forward.up.weight").used(), weight.to(DType::bf16)));
}

TEST_CASE("a translation model with adapters translates as the one that has them in its weights") {
  EncoderDecoderConfig config;
  config.source_vocabulary = config.target_vocabulary = 11, config.encoder_layers = config.decoder_layers = 1;
  config.layer.width = 12, config.layer.attention.heads = 2, config.max_length = 8;
  config.adapter = {2, 3, {"*"}};
  auto adapted = random_module<EncoderDecoder>(config);
  const Tensor source = random_ids({2, 5}, 11, 3), target = random_ids({2, 4}, 11, 4);
  const Tensor logits = adapted(source, {}, target);
  CHECK_BELOW(absolute_error(without_adapters(std::move(adapted))(source, {}, target), logits), 1e-11);
}
