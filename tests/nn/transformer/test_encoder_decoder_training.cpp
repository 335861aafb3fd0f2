#include <tapeformer/nn/transformer/encoder_decoder.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/tests/nn/module_case.h>

#include <nlohmann/json.hpp>

#include <algorithm>

using namespace tapeformer;

namespace {

/// Our name of a parameter, as the golden files call it.
std::string golden_name(const std::string& name) {
  if (name == "encoder.embedding.weight") return "source_embedding.weight";
  if (name == "decoder.embedding.weight") return "target_embedding.weight";
  for (const std::string stack : {"encoder", "decoder"}) {
    if (name.find(stack + ".norm.") == 0) return stack + "_norm." + name.substr(stack.size() + 6);
  }
  return name;
}

EncoderDecoderConfig config_of(const nlohmann::ordered_json& options) {
  EncoderDecoderConfig config;
  config.layer.width = options.at("width");
  config.layer.attention.heads = options.at("heads");
  config.layer.attention.key_width = options.at("key_width");
  config.layer.attention.value_width = options.at("value_width");
  config.layer.feed_forward = options.at("feed_forward");
  config.layer.activation = activation_named(options.at("activation").get<std::string>());
  config.layer.norm_first = options.at("norm_first");
  config.layer.epsilon = options.at("epsilon");
  config.source_vocabulary = options.at("source_vocabulary");
  config.target_vocabulary = options.at("target_vocabulary");
  config.encoder_layers = config.decoder_layers = options.at("layers");
  config.tie_target_head = false;
  return config;
}

/// Trains as tests/golden/golden_train.py does and compares with its file.
void check_training(const std::string& name, DType type) {
  INFO(name, " in ", name_of(type));
  const bool is_double = type == DType::f64;
  const Golden golden("train");
  const auto options = golden.options(name);
  const auto zero_gradients = options.at("zero_gradients").get<std::vector<std::string>>();
  const auto is_noise = [&](const std::string& parameter) {
    return std::count(zero_gradients.begin(), zero_gradients.end(), parameter) > 0;
  };

  Generator random(test_seed(1));
  EncoderDecoder model(config_of(options), random);
  auto parameters = model.named_parameters();
  std::size_t parts = 0;
  for (auto& [path, parameter] : parameters) {
    parameter.set_value(golden_parameter(golden, name, "param.", golden_name(path), type));
    parts += golden_parts(path).size();
  }
  REQUIRE(parts == golden.names(name, "param.").size());

  AdamWConfig adamw;
  adamw.beta1 = options.at("beta1");
  adamw.beta2 = options.at("beta2");
  adamw.epsilon = options.at("adam_epsilon");
  adamw.weight_decay = options.at("weight_decay");
  AdamW optimizer(model.parameters(), adamw);
  const CrossEntropyOptions loss_options{options.at("ignored").get<Index>(),
                                         options.at("smoothing").get<double>()};

  const Tensor losses = golden.tensor(name, "losses"), norms = golden.tensor(name, "gradient_norms");
  const double tolerance = is_double ? 1e-10 : 1e-5;
  for (Index step = 0; step < options.at("steps").get<Index>(); ++step) {
    INFO("step ", step);
    const auto batch = [&](const char* what) {
      return golden.tensor(name, "batch." + std::to_string(step) + "." + what);
    };
    optimizer.clear_gradients();
    Tape tape;
    const Tensor loss = model.loss(batch("source"), batch("source_may_attend"), batch("target_in"),
                                   batch("target_out"), loss_options);
    CHECK_BELOW(std::fabs(loss.item() / losses.at(step) - 1), tolerance);
    tape.backward(loss);
    if (step == 0) {
      for (const auto& [path, parameter] : parameters) {
        for_each_golden_part(golden, name, "grad.", golden_name(path), parameter.gradient(),
                             [&](const std::string& part, const Tensor& gradient, const Tensor& expected) {
                               if (is_noise(part)) {
                                 CHECK_BELOW(absolute_error(gradient, Tensor::zeros(expected.shape())),
                                             is_double ? 1e-12 : 1e-6);
                               } else {
                                 CHECK_BELOW(relative_error(gradient, expected), is_double ? 1e-10 : 1e-5);
                               }
                             });
      }
    }
    const double norm = clip_gradient_norm(model.parameters(), options.at("clip"));
    CHECK_BELOW(std::fabs(norm / norms.at(step) - 1), is_double ? 1e-9 : 1e-4);
    optimizer.step(options.at("learning_rate"));
  }
  for (const auto& [path, parameter] : parameters) {
    if (!is_double) continue;
    for_each_golden_part(golden, name, "final.", golden_name(path), parameter,
                         [&](const std::string& part, const Tensor& ours, const Tensor& expected) {
                           if (!is_noise(part)) CHECK_BELOW(relative_error(ours, expected), 1e-9);
                         });
  }
}

}  // namespace

TEST_CASE("ten AdamW steps are PyTorch's: losses, first gradients, norms, final parameters") {
  for (const std::string name : {"pre_norm", "post_norm"}) {
    check_training(name, DType::f64);
    check_training(name, DType::f32);
  }
}
