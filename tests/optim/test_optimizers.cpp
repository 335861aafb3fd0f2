#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/moving_average.h>
#include <tapeformer/optim/optimizers.h>
#include <tapeformer/optim/sgd.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/text.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

/// A user's own: half of the momentum, by default.
struct Own : Sgd {
  struct Config {
    double nerve = 0.5;
    void describe(const FieldVisitor& field) { field("nerve", nerve, "half of the momentum", kShare); }
  };
  Own(std::vector<Parameter> parameters, const Config& config)
      : Sgd(std::move(parameters), {config.nerve / 2, 0}) {}
};

}  // namespace

TEST_CASE("a profile has the bytes of every kind's step and norm") {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    CAPTURE(kind.name);
    OptimCase model(DType::f64);
    model.set_gradients(0);
    const auto made = OptimizerConfig{kind.name, {}}.make(model.parameters());
    const Profile profile;
    made->clipped_step(0.1, 1, 1);
    Index steps = 0, norms = 0;
    for (const ProfileLine& line : profile.lines())
      (line.op == "gradient_norm" ? norms : steps) += line.bytes;
    CHECK(norms == 9 * 8);
    CHECK(steps >= 2 * 9 * 8);  // values and gradients
    CHECK(steps <= 4 * 9 * 8);  // and two tensors of state
  }
}

TEST_CASE("options have the kind's defaults, and another kind begins with its own") {
  OptimizerConfig config;
  CHECK(config.option("beta2") == 0.999);
  CHECK_FALSE(config.option("momentum"));
  config.options["beta2"] = 0.9;
  config.set_kind("adamw");
  CHECK(config.option("beta2") == 0.9);
  config.set_kind("sgd");
  CHECK(config.options.empty());
  CHECK(config.option("momentum") == 0);
  config.set_kind("adamw");
  CHECK(config.option("beta2") == 0.999);
}

TEST_CASE("unknown kinds and options are refused by their names, and so are numbers out of range") {
  OptimizerConfig config;
  CHECK(message_of<Error>([&] { config.set_kind("zigzag"); }) ==
        "the optimizer must be " + optimizer_names() + "; got zigzag");
  const OptimCase model(DType::f32);
  const auto refused = [&](const OptimizerConfig& bad) {
    return message_of<Error>([&] { bad.make(model.parameters()); });
  };
  CHECK(refused({"adamw", {{"momentum", 0.5}}}) == "[adamw] there is no option momentum");
  CHECK(refused({"adamw", {{"beta1", 1}}}) == "[adamw] beta1 must be in [0, 1); got 1");
  CHECK(refused({"sgd", {{"weight_decay", -1}}}) == "[sgd] weight_decay must not be negative; got -1");
}

TEST_CASE("groups have kinds, options and shares of the learning rate of their own") {
  OptimizerConfig config{"adamw", {{"beta2", 0.9}}};
  config.groups = parameter_groups_of({"*.bias:rate=0.5,beta1=0.7"});
  const auto expect = [](const OptimizerConfig& given, Optimizer& of_weight, Optimizer& of_bias,
                         const OptimCase& expected, double rate) {
    OptimCase model(DType::f64);
    const auto made = given.make(model.parameters());
    for (int step = 0; step < 4; ++step) {
      model.set_gradients(step);
      expected.set_gradients(step);
      made->step(0.1);
      of_weight.step(0.1);
      of_bias.step(0.1 * rate);
    }
    CHECK(absolute_error(model.weight.value(), expected.weight.value()) == 0);
    CHECK(absolute_error(model.bias.value(), expected.bias.value()) == 0);
  };
  AdamWConfig adamw;
  adamw.beta2 = 0.9;
  {
    const OptimCase expected(DType::f64);
    AdamW of_weight({expected.weight}, adamw);
    adamw.beta1 = 0.7;
    AdamW of_bias({expected.bias}, adamw);
    expect(config, of_weight, of_bias, expected, 0.5);
  }
  {
    const OptimCase expected(DType::f64);
    AdamW of_weight({expected.weight}, {0.9, 0.9});
    Sgd of_bias({expected.bias});
    config.groups = parameter_groups_of({"layer.b*:optimizer=sgd"});
    expect(config, of_weight, of_bias, expected, 1);
  }
  config.groups = parameter_groups_of({"layer.b*:optimizer=sgd,beta1=0.5"});
  CHECK(message_of<Error>([&] { config.check(); }) == "[sgd] there is no option beta1");
  config.groups = parameter_groups_of({"layer.b*:optimizer=zigzag"});
  CHECK(message_of<Error>([&] { config.check(); }).find("the optimizer must be ") == 0);
  config.groups = parameter_groups_of({"layer.c*:rate=1"});
  const OptimCase model(DType::f64);
  CHECK_THROWS_WITH_AS(config.make(model.parameters()), doctest::Contains("got layer.c*"), Error);
}

TEST_CASE("in f32, state saved in the middle and restored continues to the same bits") {
  for (const OptimizerConfig& config : every_optimizer()) {
    CAPTURE(config.kind);
    OptimCase whole(DType::f32), parts(DType::f32);
    const auto uninterrupted = config.make(whole.parameters()), before = config.make(parts.parameters()),
               after = config.make(parts.parameters());
    whole.run(*uninterrupted, 0, 8);
    parts.run(*before, 0, 4);
    OptimizerCopy copy;
    before->visit_state(copy);
    copy.restores = true;
    after->visit_state(copy);
    parts.run(*after, 4, 8);
    CHECK(absolute_error(parts.weight.value(), whole.weight.value()) == 0);
    CHECK(absolute_error(parts.bias.value(), whole.bias.value()) == 0);
  }
}

TEST_CASE("a clipped step is the step at the clip's factor, to the same bits, and returns the norm") {
  for (const OptimizerConfig& config : every_optimizer()) {
    CAPTURE(config.kind);
    for (const auto& [max_norm, share] :
         {std::pair(0.0, 0.25), std::pair(0.5, 1.0), std::pair(100.0, 0.25)}) {
      OptimCase clipped(DType::f32), plain(DType::f32);
      const auto one = config.make(clipped.parameters()), other = config.make(plain.parameters());
      for (int step = 0; step < 3; ++step) {
        for (OptimCase* model : {&clipped, &plain}) {
          model->set_gradients(step);
          if (step == 1) model->bias.clear_gradient();
        }
        const Tensor norm = one->clipped_step(0.1, share, max_norm);
        const double expected = share * gradient_norm(plain.parameters());
        other->step(0.1, kernels::step_factor(expected, share, max_norm));
        CHECK(norm.dtype() == DType::f64);
        CHECK(norm.device() == clipped.weight.value().device());
        CHECK(norm.item() == expected);
        CHECK(absolute_error(clipped.weight.value(), plain.weight.value()) == 0);
        CHECK(absolute_error(clipped.bias.value(), plain.bias.value()) == 0);
      }
    }
  }
}

TEST_CASE("steps whose norms are not finite leave no trace, whatever the kind") {
  for (const OptimizerConfig& config : every_optimizer()) {
    CAPTURE(config.kind);
    const auto trained = [&](bool stumbles) {
      OptimCase model(DType::f32);
      if (default_device().is_cuda()) model.weight.set_shadow(DType::bf16);
      const auto optimizer = config.make(model.parameters());
      MovingAverage average(model.parameters(), 0.9);
      const auto step = [&] { average.include_weights(optimizer->clipped_step(0.1, 1, 1)); };
      for (int good = 0; good < 5; ++good) {
        for (int bad = 0; stumbles && bad < good; ++bad) {  // once before the second step, then more often
          model.set_gradients(good + bad);
          model.weight.gradient().copy_from(Tensor::full({2, 3}, bad % 2 == 0 ? NAN : INFINITY));
          if (bad == 1) model.bias.clear_gradient();
          step();
        }
        model.set_gradients(good);
        if (good == 3) model.bias.clear_gradient();
        step();
      }
      std::vector<double> all;
      const auto keep = [&](const Tensor& x) {
        for (Index i = 0; i < x.elements(); ++i) all.push_back(x.at(i));
      };
      OptimizerCopy state;
      optimizer->visit_state(state);
      average.visit_state(state);
      for (const auto& [name, value] : state.tensors) keep(value);
      for (const auto& [name, value] : state.counters) all.push_back(static_cast<double>(value));
      for (const Parameter& parameter : model.parameters()) {
        keep(parameter.value());
        keep(parameter.used());
      }
      return all;
    };
    CHECK(trained(true) == trained(false));
  }
}

TEST_CASE("a program adds its own optimizer by one line") {
  optimizer_kinds().push_back(optimizer_kind<Own>("own"));
  CHECK(optimizer_names().find("adamw, sgd") == 0);
  CHECK(has(optimizer_names(), " or own"));
  const OptimizerConfig config{"own", {}};
  CHECK(config.option("nerve") == 0.5);
  OptimCase model(DType::f64), expected(DType::f64);
  Sgd sgd(expected.parameters(), {0.25, 0});
  model.run(*config.make(model.parameters()), 0, 5);
  expected.run(sgd, 0, 5);
  CHECK(relative_error(model.weight.value(), expected.weight.value()) == 0);
  std::vector<std::string> names;
  for (const ConfigField& field : fields_of(config)) names.push_back(field.name);
  CHECK(names.front() == "optimizer");
  CHECK(std::count(names.begin(), names.end(), "weight_decay") == 1);
  CHECK(names.back() == "nerve");
  optimizer_kinds().pop_back();
}
