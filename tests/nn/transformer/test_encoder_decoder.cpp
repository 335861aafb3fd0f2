#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/check_gradients.h>

#include <doctest/doctest.h>

#include <algorithm>

using namespace tapeformer;

namespace {

EncoderDecoderConfig small_config() {
  EncoderDecoderConfig config;
  config.layer.width = 6;
  config.layer.attention.heads = 3;
  config.layer.attention.key_width = 4;
  config.layer.attention.value_width = 5;
  config.layer.feed_forward = 7;
  config.layer.activation = Unary::gelu;
  config.source_vocabulary = 7;
  config.target_vocabulary = 8;
  config.encoder_layers = 2;
  config.decoder_layers = 1;
  config.max_length = 12;
  return config;
}

EncoderDecoder model_of(const EncoderDecoderConfig& config) {
  Generator random(test_seed(1));
  EncoderDecoder model(config, random);
  model.to(DType::f64);
  randomise(model, 2);
  return model;
}

const Tensor& source() {
  static const Tensor ids = ids_of({4, 6, 3, 0, 5, 4, 6, 3}, {2, 4});
  return ids;
}
const Tensor& source_mask() {
  static const Tensor mask = real_tokens({3, 4}, 4);
  return mask;
}
const Tensor& target() {
  static const Tensor ids = ids_of({2, 4, 7, 2, 5, 0}, {2, 3});
  return ids;
}
const Tensor& labels() {
  static const Tensor ids = ids_of({4, 7, 3, 5, 3, -1}, {2, 3});
  return ids;
}

std::vector<std::string> parameter_names(Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : module.named_parameters()) names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("gradients of the loss agree with differences, for each norm, position and tie, with dropout") {
  for (const bool norm_first : {true, false}) {
    for (const bool tied : {true, false}) {
      EncoderDecoderConfig config = small_config();
      config.layer.norm_first = norm_first;
      config.layer.dropout = norm_first == tied ? 0.2 : 0;
      config.tie_target_head = tied;
      config.tie_embeddings = tied;
      if (tied) config.source_vocabulary = config.target_vocabulary;
      config.positions = norm_first ? PositionKind::sinusoidal : PositionKind::learned;
      EncoderDecoder model = model_of(config);
      const auto loss = [&] {
        return model.loss(source(), source_mask(), target(), labels(), {-1, 0.1}, {norm_first, 3});
      };
      const std::string name = std::string("encoder_decoder ") + (norm_first ? "pre-norm" : "post-norm") +
                               (tied ? " tied" : "") + (config.layer.dropout > 0 ? " dropout" : "");
      check_gradients(name, gradcheck_module(model, {}, loss, sampled(10)));
    }
  }
}

TEST_CASE("with zero_init a pre-norm stack passes its input on, and norms are of the kind asked for") {
  EncoderDecoderConfig config = small_config();
  config.zero_init = true;
  config.layer.norm = NormKind::rms;
  Generator random(test_seed(1));
  EncoderDecoder model(config, random);
  config.encoder_layers = config.decoder_layers = 3;
  Generator same(test_seed(1));
  EncoderDecoder deeper(config, same);
  CHECK_BELOW(relative_error(deeper.encode(source(), source_mask()), model.encode(source(), source_mask())),
              1e-6);
  for (const std::string& name : parameter_names(model)) CHECK(name.find("norm.bias") == std::string::npos);
}

TEST_CASE("a sentence in a padded batch gets the logits it gets alone") {
  for (const bool norm_first : {true, false}) {
    EncoderDecoderConfig config = small_config();
    config.layer.norm_first = norm_first;
    const EncoderDecoder model = model_of(config);
    const Tensor batch = model(source(), source_mask(), target());
    const Tensor first = model(ids_of({4, 6, 3}, {1, 3}), {}, ids_of({2, 4, 7}, {1, 3}));
    const Tensor second = model(ids_of({5, 4, 6, 3}, {1, 4}), {}, ids_of({2, 5}, {1, 2}));
    CHECK_BELOW(absolute_error(slice(batch, 0, 0, 1), first), 1e-13);
    CHECK_BELOW(absolute_error(slice(slice(batch, 0, 1, 1), 1, 0, 2), second), 1e-13);
  }
}

TEST_CASE("parameters are named by their path and counted once") {
  EncoderDecoderConfig config = small_config();
  config.tie_target_head = false;
  EncoderDecoder model = model_of(config);
  const auto names = parameter_names(model);
  CHECK(names.front() == "encoder.embedding.weight");
  CHECK(names[1] == "encoder.0.self_attention.query_key_value.weight");
  CHECK(names.back() == "head.bias");
  for (const char* name :
       {"encoder.1.feed_forward.down.bias", "encoder.norm.weight", "decoder.embedding.weight",
        "decoder.0.cross_attention.value.weight", "decoder.0.cross_attention_norm.bias"})
    CHECK(std::count(names.begin(), names.end(), name) == 1);

  config.tie_target_head = true;
  CHECK(model_of(config).parameter_count() == model.parameter_count() - 8 * 6);
  config.tie_embeddings = true;
  config.source_vocabulary = 8;
  EncoderDecoder tied = model_of(config);
  CHECK(tied.parameter_count() == model.parameter_count() - 8 * 6 - 7 * 6);
  const auto tied_names = parameter_names(tied);
  for (const char* name : {"decoder.embedding.weight", "head.weight"})
    CHECK(std::count(tied_names.begin(), tied_names.end(), name) == 0);
  config.positions = PositionKind::learned;
  CHECK(model_of(config).parameter_count() == tied.parameter_count() + 2 * 12 * 6);
}

TEST_CASE("the decoder hands out every layer's weights over the memory, and computes the same") {
  EncoderDecoderConfig config = small_config();
  config.decoder_layers = 2;
  EncoderDecoder model = model_of(config);
  const Tensor memory = model.encode(source(), source_mask());
  std::vector<Tensor> weights, others;
  const Tensor states = model.decode(target(), memory, source_mask(), &weights);
  CHECK_BELOW(relative_error(states, model.decode(target(), memory, source_mask())), 1e-13);
  REQUIRE(weights.size() == 2);
  for (const Tensor& w : weights) {
    CHECK(w.shape() == Shape{2, 3, 3, 4});
    CHECK_BELOW(absolute_error(sum(w, {-1}), Tensor::full({2, 3, 3}, 1, DType::f64)), 1e-14);
    const Tensor padded = slice(slice(w, 0, 0, 1), 3, 3, 1);  // the first source has three tokens
    CHECK(same_bits(padded, Tensor::zeros(padded.shape(), DType::f64)));
  }
  for (auto& [name, parameter] : model.named_parameters())
    if (name == "decoder.1.cross_attention.query.weight") parameter.value().data<double>()[0] += 1;
  model.decode(target(), memory, source_mask(), &others);
  CHECK(same_bits(weights[0], others[0]));
  CHECK_FALSE(same_bits(weights[1], others[1]));
}
