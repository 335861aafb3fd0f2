#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/schedule.h>
#include <tapeformer/tests/nn/transformer/decoder_only_case.h>
#include <tapeformer/tests/reference/check_gradients.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

/// Trains as tests/golden/golden_decoder_only.py does and compares with its file.
void check_recipe(DType type, const HeadLossConfig& head) {
  INFO(std::string(name_of(type)), ", fused: ", head.fused);
  const bool is_double = type == DType::f64;
  const Golden golden("decoder_only");
  const std::string name = "recipe";
  const auto options = golden.options(name);
  Generator random(test_seed(1));
  DecoderOnly model(decoder_only_config(options), random);
  set_golden_parameters(golden, name, model, type);

  AdamWConfig adamw;
  adamw.beta1 = options.at("beta1");
  adamw.beta2 = options.at("beta2");
  adamw.weight_decay = options.at("weight_decay");
  AdamW optimizer(model.parameters(), adamw);
  ScheduleConfig rates;
  rates.kind = "cosine";
  rates.learning_rate = options.at("learning_rate");
  rates.minimum = options.at("minimum");
  rates.warmup_steps = options.at("warmup");
  rates.total_steps = options.at("steps");
  const Schedule schedule(rates);

  const Tensor batches = golden.tensor(name, "batches"), losses = golden.tensor(name, "losses"),
               norms = golden.tensor(name, "gradient_norms");
  const Index rows = batches.size(1), length = batches.size(2) - 1;
  for (Index step = 0; step < batches.size(0); ++step) {
    INFO("step ", step);
    const Tensor tokens = Tensor::empty({rows, length + 1}, DType::i32);
    std::copy_n(batches.data<std::int32_t>() + step * tokens.elements(), tokens.elements(),
                tokens.data<std::int32_t>());
    optimizer.clear_gradients();
    Tape tape;
    const Tensor loss = model.loss(columns(tokens, 0, length), columns(tokens, 1, length), {}, head);
    CHECK_BELOW(std::fabs(loss.item() / losses.at(step) - 1), is_double ? 1e-9 : 1e-5);
    tape.backward(loss);
    const double norm = clip_gradient_norm(model.parameters(), options.at("clip"));
    CHECK_BELOW(std::fabs(norm / norms.at(step) - 1), is_double ? 1e-9 : 1e-4);
    optimizer.step(schedule(step));
  }
  for (const auto& [path, parameter] : model.named_parameters()) {
    for_each_golden_part(golden, name, "final.", path, parameter,
                         [&](const std::string&, const Tensor& ours, const Tensor& theirs) {
                           CHECK_BELOW(relative_error(ours, theirs), is_double ? 1e-9 : 1e-3);
                         });
  }
}

}  // namespace

TEST_CASE("ten steps of a recipe with warm-up, cosine, clipping and decay groups are PyTorch's") {
  for (const DType type : {DType::f64, DType::f32}) {
    check_recipe(type, {});
    check_recipe(type, {true, 5});
  }
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
