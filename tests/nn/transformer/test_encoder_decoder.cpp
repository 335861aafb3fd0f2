#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/nn/formats/ends_with.h>
#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/check_gradients.h>

using namespace tapeformer;

namespace {

EncoderDecoderConfig small_config() {
  EncoderDecoderConfig config;
  config.layer = small_layer_config(true);
  config.source_vocabulary = 7;
  config.target_vocabulary = 8;
  config.encoder_layers = 2;
  config.decoder_layers = 1;
  config.max_length = 12;
  return config;
}

EncoderDecoder model_of(const EncoderDecoderConfig& config) { return random_module<EncoderDecoder>(config); }

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
      model.eval();
      const Tensor logits = model(source(), source_mask(), target());
      CHECK_BELOW(deviation(loss().item(), cross_entropy(logits, labels(), {-1, 0.1}).item()), 1e-13);
    }
  }
}

TEST_CASE("the loss has the mean of both sides' router losses, in training only") {
  EncoderDecoderConfig config = small_config();
  config.layer.experts.experts = 2;  // both of them for each token, so that the choice has no jumps
  config.layer.experts.balance_loss = 0.3, config.layer.experts.z_loss = 0.2;
  EncoderDecoder model = model_of(config);
  const auto loss = [&] { return model.loss(source(), source_mask(), target(), labels(), {-1, 0.1}); };
  check_gradients("encoder_decoder experts", gradcheck_module(model, {}, loss, sampled(10)));
  const double trained = loss().item();
  model.eval();
  CHECK(trained > loss().item() + 0.3);  // a balance loss of equal shares is its weight
}

TEST_CASE("with zero_init a pre-norm stack passes its input on, and norms are of the kind asked for") {
  EncoderDecoderConfig config = small_config();
  config.zero_init = true;
  config.layer.experts.experts = 2, config.layer.experts.shared = 5;
  config.layer.norm = NormKind::rms;
  auto model = fresh_module<EncoderDecoder>(config);
  config.encoder_layers = config.decoder_layers = 3;
  auto deeper = fresh_module<EncoderDecoder>(config);
  CHECK_BELOW(relative_error(deeper.encode(source(), source_mask()), model.encode(source(), source_mask())),
              1e-6);
  for (const auto& [name, value] : parameters_of(model)) {
    CHECK_FALSE(ends_with(name, "norm.bias"));
    if (ends_with(name, "attention.output.weight") || ends_with(name, "down.weight"))
      CHECK(absolute_error(value, Tensor::zeros(value.shape())) == 0);
  }
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
  parameter_of(model, "decoder.1.cross_attention.query.weight").value().data<double>()[0] += 1;
  model.decode(target(), memory, source_mask(), &others);
  CHECK(same_bits(weights[0], others[0]));
  CHECK_FALSE(same_bits(weights[1], others[1]));
}
