#include <tapeformer/tests/nn/transformer/decoder_only_case.h>
#include <tapeformer/tests/reference/check_gradients.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

const Tensor& ids() {
  static const Tensor tokens = ids_of({4, 6, 3, 0, 5, 4, 1, 3}, {2, 4});
  return tokens;
}
const Tensor& targets() {
  static const Tensor tokens = ids_of({6, 3, 0, 2, 4, -1, 3, 1}, {2, 4});
  return tokens;
}
const Tensor& prompts() {
  static const Tensor lengths = ids_of({3, 0}, {2});
  return lengths;
}

struct Variant {
  const char* name;
  bool prefix, fused;
  std::function<void(DecoderOnlyConfig&)> change;
};

void every_bias(DecoderOnlyConfig& c) { c.attention.bias = c.norm_bias = c.feed_forward_bias = true; }

/// Every choice, most of them in two combinations.
const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
      {"mha layer learned gelu tied", false, true, [](auto& c) { c.activation = Unary::gelu; }},
      {"mha layer learned gelu_tanh tied biases", false, false, every_bias},
      {"gqa rms rotary swiglu untied", false, false,
       [](auto& c) {
         c.attention.kind = "gqa", c.norm = NormKind::rms, c.tie_head = false;
         c.positions = PositionKind::rotary;
         swiglu(c);
       }},
      {"mqa rms rotary swiglu head_width tied", true, true,
       [](auto& c) {
         c.attention.kind = "mqa", c.norm = NormKind::rms, c.attention.key_width = 6;
         c.positions = PositionKind::rotary, c.attention.rotations.layout = RotaryLayout::half_split;
         swiglu(c);
       }},
      {"mla layer learned gelu_tanh convolutions tied biases", true, false,
       [](auto& c) {
         c.short_convolution = 2;
         c.attention.kind = "mla";
         every_bias(c);
       }},
      {"mla queries rms rotary swiglu untied head_bias", false, true,
       [](auto& c) {
         c.attention.kind = "mla", c.attention.latent_width = 5, c.attention.query_latent_width = 3;
         c.norm = NormKind::rms, c.positions = PositionKind::rotary;
         c.tie_head = false, c.head_bias = true;
         swiglu(c);
       }},
      {"mha rms sinusoidal relu_squared untied head_bias", true, false,
       [](auto& c) {
         c.norm = NormKind::rms, c.positions = PositionKind::sinusoidal, c.activation = Unary::relu_squared;
         c.tie_head = false, c.head_bias = true;
       }},
      {"gqa layer learned gelu tied dropouts", true, true,
       [](auto& c) {
         c.attention.kind = "gqa", c.attention.groups = 1, c.activation = Unary::gelu;
         c.embedding_dropout = c.residual_dropout = c.attention.dropout = 0.2;
       }},
      {"mha rms rotary silu qk_norm convolutions softcap untied", true, true,
       [](auto& c) {
         c.short_convolution = 3;
         c.norm = NormKind::rms, c.positions = PositionKind::rotary, c.activation = Unary::silu;
         c.attention.qk_norm = QkNorm::rms;
         c.attention.key_width = 6;  // narrow heads may be so short that norms divide by little
         c.logit_softcap = 1.5;
         c.tie_head = false, c.head_bias = true;
       }},
      {"gqa layer learned convolutions softcap tied dropouts", false, false,
       [](auto& c) {
         c.short_convolution = 6;  // as many as there are positions
         c.attention.kind = "gqa";
         c.logit_softcap = 3;
         c.feed_forward_dropout = c.residual_dropout = 0.2;
         every_bias(c);
       }},
      {"mha rms rotary window in SL value_residual l2 gates untied", true, false,
       [](auto& c) {
         c.norm = NormKind::rms, c.positions = PositionKind::rotary, c.tie_head = false;
         c.window = 2, c.windows = "SL", c.window_rotary_base = 50, c.value_residual = true;
         c.attention.qk_norm = QkNorm::l2, c.attention.output_gate = OutputGate::element;
         c.attention.key_width = 6;
       }},
      {"mqa rms rotary value_residual, joint, gates, windows in SS, norms of outputs", false, true,
       [](auto& c) {
         c.attention.kind = "mqa", c.norm = NormKind::rms, c.positions = PositionKind::rotary;
         c.sublayer_norms = SublayerNorms::output, c.value_residual = true;
         c.epsilon = 0.1, c.attention.key_width = 6;  // a sublayer's output may be short
         c.window = 3, c.windows = "SS";
         c.attention.qk_norm = QkNorm::joint, c.attention.output_gate = OutputGate::head;
       }},
      {"gqa layer none shared keys window convolutions tied", false, false,
       [](auto& c) {
         c.attention.kind = "gqa", c.positions = PositionKind::none;
         c.kv_sharing = 2, c.window = 3, c.short_convolution = 2;
         c.attention.key_width = 5;
       }},
      {"mha rms rotary shared keys norms of outputs yarn tied", true, true,
       [](auto& c) {
         c.norm = NormKind::rms, c.positions = PositionKind::rotary, c.kv_sharing = 2;
         c.sublayer_norms = SublayerNorms::output, c.attention.qk_norm = QkNorm::rms, c.epsilon = 0.1;
         c.attention.key_width = 8;
         c.attention.rotations.yarn = true, c.attention.rotations.factor = 4;
         c.attention.rotations.original_context = 16, c.attention.rotations.high_frequency = 32;
         c.attention.rotations.attention_factor = 1.1;
       }},
      {"mha layer learned bidirectional post-norm transformed head token types biases dropouts", false, true,
       [](auto& c) {
         c.bidirectional = c.embedding_norm = c.head_transform = c.head_bias = true;
         c.sublayer_norms = SublayerNorms::sum, c.token_types = 3;
         c.activation = Unary::gelu, c.epsilon = 0.1;  // a residual sum may be short
         c.embedding_dropout = c.residual_dropout = c.attention.dropout = 0.2;
         every_bias(c);
       }},
      {"mha layer rotary bidirectional windows in LS geglu no first norm transformed head", false, false,
       [](auto& c) {
         c.bidirectional = c.embedding_norm = c.head_transform = c.head_bias = true;
         c.positions = PositionKind::rotary, c.attention.rotations.layout = RotaryLayout::half_split;
         c.window = 2, c.windows = "LS", c.window_rotary_base = 50, c.first_norm = false;
         c.activation = Unary::gelu, c.gated = true, c.epsilon = 0.1;
       }},
      {"mqa layer sinusoidal gated gelu tied dropouts", false, false, [](auto& c) {
         c.attention.kind = "mqa", c.positions = PositionKind::sinusoidal;
         c.activation = Unary::gelu, c.gated = true;
         c.embedding_dropout = c.residual_dropout = c.attention.dropout = 0.3;
         every_bias(c);
       }}};
  return all;
}

DecoderOnly model_of(const Variant& variant) {
  DecoderOnlyConfig config = tiny_config();
  variant.change(config);
  return tiny_model(config);
}

}  // namespace

TEST_CASE("gradients of both orders agree with differences for every choice") {
  for (std::size_t i = 0; i < variants().size(); ++i) {
    if (!is_tried(i)) continue;
    const Variant& variant = variants()[i];
    DecoderOnly model = model_of(variant);
    const HeadLossConfig head{variant.fused, variant.fused ? 3 : 0};
    const Tensor lengths = variant.prefix ? prompts() : Tensor();
    const auto loss = [&] { return model.loss(ids(), targets(), lengths, head); };
    const std::string name = std::string("decoder_only ") + variant.name + (variant.prefix ? " prefix" : "") +
                             (variant.fused ? " fused" : "");
    check_gradients(name, gradcheck_module(model, {}, loss, sampled(6)));
    check_gradients(name, gradcheck_module(model, {}, loss, second_order(2)));
  }
}

TEST_CASE("logits, loss and all gradients are PyTorch's, with the head's loss fused and plain") {
  const Golden golden("decoder_only");
  for (const std::string name : {"gpt", "gpt_biased", "llama", "llama_interleaved", "prefix", "modern",
                                 "convolutions", "windows", "sharing", "yarn", "no_positions"}) {
    const auto options = golden.options(name);
    const auto zero_gradients = options.at("zero_gradients").get<std::vector<std::string>>();
    auto model = fresh_module<DecoderOnly>(decoder_only_config(options));
    const Tensor tokens = golden.tensor(name, "ids"), expected = golden.tensor(name, "targets");
    const Tensor lengths = name == "prefix" ? golden.tensor(name, "prefix_lengths") : Tensor();
    // The gradients of mixing weights are sums with a product for each element
    // of the states, of either sign: about the root of their number is left of them, not of roundings.
    const double of_sum = std::sqrt(static_cast<double>(tokens.elements() * model.config().width));
    for (const DType type : {DType::f64, DType::f32}) {
      const double tolerance = type == DType::f64 ? 1e-10 : 1e-5;
      set_golden_parameters(golden, name, model, type);
      CHECK_BELOW(relative_error(model(tokens, lengths), golden.tensor(name, "logits")), tolerance);
      for (const HeadLossConfig head : {HeadLossConfig{}, HeadLossConfig{true, 0}, HeadLossConfig{true, 4}}) {
        INFO(name, " in ", std::string(name_of(type)), ", fused: ", head.fused, ", chunk ", head.chunk);
        model.clear_gradients();
        Tape tape;
        const Tensor loss = model.loss(tokens, expected, lengths, head);
        CHECK_BELOW(std::fabs(loss.item() / golden.tensor(name, "loss").item() - 1), tolerance);
        tape.backward(loss);
        for (const auto& [path, parameter] : model.named_parameters()) {
          for_each_golden_part(golden, name, "grad.", path, parameter.gradient(),
                               [&](const std::string& part, const Tensor& ours, const Tensor& theirs) {
                                 if (std::count(zero_gradients.begin(), zero_gradients.end(), part) > 0) {
                                   CHECK_BELOW(absolute_error(ours, Tensor::zeros(ours.shape())),
                                               tolerance / 10);
                                 } else {
                                   CHECK_BELOW(relative_error(ours, theirs),
                                               tolerance * (theirs.elements() <= 2 ? of_sum : 1));
                                 }
                               });
        }
      }
    }
  }
}

TEST_CASE("the attention weights of a layer and head are shares of a token and those before, or around") {
  for (const Variant& variant : variants()) {
    INFO(std::string(variant.name));
    DecoderOnly model = model_of(variant);
    model.eval();
    const DecoderOnlyConfig& config = model.config();
    const std::vector<Tensor> weights = model.attention_weights(ids());
    REQUIRE(static_cast<Index>(weights.size()) == config.layers);
    for (Index layer = 0; layer < config.layers; ++layer) {
      const Tensor& weights_bhts = weights[static_cast<std::size_t>(layer)];
      const Index seen = !config.has_window(layer) ? ids().size(1)
                         : config.bidirectional    ? config.window / 2 + 1
                                                   : config.window;
      const Index heads = config.attention_config().heads, length = ids().size(1);
      REQUIRE(weights_bhts.shape() == Shape{2, heads, length, length});
      for (Index row = 0; row < 2 * heads * length; ++row) {
        double sum = 0;
        for (Index s = 0; s < length; ++s) {
          const double weight = weights_bhts.at(row * length + s);
          const Index before = config.bidirectional ? std::abs(row % length - s) : row % length - s;
          CHECK((before >= 0 && before < seen ? weight > 0 : weight == 0));
          sum += weight;
        }
        CHECK_BELOW(deviation(sum, 1), 1e-6);
      }
    }
  }
}

TEST_CASE("layers with a state have no attention weights") {
  DecoderOnlyConfig config = tiny_config();
  config.attention.kind = "gated_deltanet", config.attention_pattern = "DF";
  config.positions = PositionKind::rotary;
  DecoderOnly model = tiny_model(config);
  model.eval();
  const std::vector<Tensor> weights = model.attention_weights(ids());
  for (std::size_t i = 0; i < weights.size(); ++i) CHECK(weights[i].defined() == (i % 2 == 1));
}

TEST_CASE("the loss has the mean of the layers' router losses, in training only") {
  DecoderOnlyConfig config = tiny_config();
  config.experts.experts = 3, config.experts.z_loss = 0.5;
  DecoderOnly model = tiny_model(config);
  const Tensor ids = random_ids({2, 5}, config.vocabulary, 3),
               targets = random_ids({2, 5}, config.vocabulary, 4);
  LayerRecord routers;
  model.states(ids, {}, {}, &routers);
  const double trained = model.loss(ids, targets).item();
  model.eval();
  CHECK(routers.router_losses.item() > 0);
  CHECK(routers.shares.size() == 2);
  const double measured = model.loss(ids, targets).item();
  CHECK_BELOW(deviation(trained, measured + routers.router_losses.item() / 2), 1e-14);
}

TEST_CASE("each dropout reaches its place, in training only") {
  for (const int place : {0, 1, 2, 3}) {
    DecoderOnlyConfig config = tiny_config();
    const DecoderOnly without = tiny_model(config);
    double* const dropouts[] = {&config.embedding_dropout, &config.residual_dropout,
                                &config.attention.dropout, &config.feed_forward_dropout};
    *dropouts[place] = 0.5;
    DecoderOnly model = tiny_model(config);
    const Tensor once = model(ids());
    CHECK(relative_error(once, without(ids())) > 0.01);
    CHECK(relative_error(model(ids()), once) > 0.01);
    model.eval();
    CHECK(same_bits(model(ids()), without(ids())));
  }
  DecoderOnlyConfig config = tiny_config();
  CHECK(same_bits(tiny_model(config)(ids()), tiny_model(config)(ids())));
}

TEST_CASE("slow: all gradients of a model of GPT-2's size are right, along random directions") {
  DecoderOnlyConfig config;
  config.vocabulary = 50257, config.context = 1024, config.layers = 12, config.width = 768;
  config.attention.heads = 12;
  Generator random(test_seed(1));
  DecoderOnly model(config, random);
  CHECK(model.parameter_count() == 124439808);
  model.to(DType::f64);
  std::vector<std::int32_t> tokens(9);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(config.vocabulary));
  const Tensor ids = ids_of({tokens.begin(), tokens.end() - 1}, {1, 8}),
               targets = ids_of({tokens.begin() + 1, tokens.end()}, {1, 8});
  GradcheckOptions options;
  options.directions = 2;
  const auto loss = [&] { return model.loss(ids, targets); };
  check_gradients("gpt2-124m", gradcheck_module(model, {}, loss, options));

  // One matrix of 148 whose gradient is a hundredth too large.
  options.on_tape = [](Tape& tape) {
    tape.wrap_gradients([](const Contribution& from, const Tensor& gradient) {
      return from.node == 40 && from.input == 1 ? affine(gradient, 1.01, 0) : gradient;
    });
  };
  CHECK_FALSE(gradcheck_module(model, {}, loss, options).passed());
}
