#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>
#include <tapeformer/optim/sgd.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/support.h>

#include <functional>
#include <memory>

using namespace tapeformer;

namespace {

/// Two layers and a factor; visit() names only the chosen ones.
struct Forgetful : Module {
  explicit Forgetful(Generator random = Generator(test_seed(1)))
      : first({3, 4, true, {}}, random), second({4, 2, true, {}}, random), factor(Tensor::full({2}, 1)) {}
  Tensor operator()(const Tensor& x) const { return sum(second(first(x)) * factor); }
  void visit(ParameterVisitor& visitor) override {
    visitor.child("first", first);
    if (names_second) visitor.child("second", second);
    if (names_factor) visitor.parameter("factor", factor);
  }
  void backward() const {
    Tape tape;
    tape.backward((*this)(Tensor::full({1, 3}, 1)));
  }

  bool names_second = false, names_factor = true;
  Linear first, second;
  Parameter factor;
};

}  // namespace

TEST_CASE("state is named after the algorithm and the parameters") {
  OptimCase model(DType::f64);
  OptimizerCopy adamw, sgd, plain;
  AdamW optimizer(model.parameters());
  model.run(optimizer, 0, 3);
  optimizer.visit_state(adamw);
  CHECK(adamw.tensors.size() == 4);
  CHECK(adamw.tensors.at("adamw.first_moment.layer.weight").shape() == Shape{2, 3});
  CHECK(adamw.tensors.at("adamw.second_moment.layer.bias").shape() == Shape{3});
  CHECK(adamw.counters ==
        std::map<std::string, std::int64_t>{{"adamw.steps.layer.bias", 2}, {"adamw.steps.layer.weight", 3}});
  Sgd(model.parameters(), {0.9, 0}).visit_state(sgd);
  CHECK(sgd.tensors.count("sgd.velocity.layer.weight") == 1);
  Sgd({Parameter(Tensor::zeros({2}))}, {0.9, 0}).visit_state(plain);
  CHECK(plain.tensors.count("sgd.velocity.0") == 1);
}

TEST_CASE("cleared gradients keep their buffers, and steps pass over them") {
  OptimCase model(DType::f32);
  model.set_gradients(0);
  Sgd optimizer(model.parameters());
  const void* buffer = model.bias.gradient().raw();
  optimizer.clear_gradients();
  CHECK_FALSE(model.weight.gradient().defined());
  CHECK_FALSE(model.bias.gradient().defined());
  CHECK(model.bias.state()->gradient.raw() == buffer);
  optimizer.step(1);
  CHECK(model.bias.value().at(0) == doctest::Approx(0.1));
}

TEST_CASE("the first backward names parameters that visit() forgot") {
  Forgetful model;
  Sgd optimizer(model.parameters());
  const std::string rule =
      "[backward] a parameter used together with an optimizer's must be in an optimizer or named by a "
      "visit(), or it would be neither trained nor saved; got gradients of ";
  const std::string remedy =
      "; try visitor.parameter() or visitor.child() in its module's visit(), set_trainable(false), or "
      "set_name() if you update it yourself";
  CHECK(message_of<TapeError>([&] { model.backward(); }) ==
        rule + "f32[2,4] (read by linear), f32[2] (read by linear)" + remedy);
  model.names_second = true, model.names_factor = false;
  Forgetful other;
  other.names_second = true, other.names_factor = false;
  Sgd its(other.parameters());
  CHECK(message_of<TapeError>([&] { other.backward(); }) == rule + "f32[2] (read by multiply)" + remedy);
}

TEST_CASE("parameters that are frozen, named, in another optimizer, or in no optimized model are accepted") {
  std::vector<std::unique_ptr<Sgd>> optimizers;
  const auto train = [&](const std::vector<Parameter>& some) {
    optimizers.push_back(std::make_unique<Sgd>(some));
  };
  const auto freeze = [](Linear& layer) {
    for (Parameter* parameter : {&layer.weight(), &layer.bias()}) parameter->set_trainable(false);
  };
  const std::function<void(Forgetful&)> innocent[] = {
      [](Forgetful&) {},
      [](Forgetful& model) { model.parameters(); },  // which names them
      [&](Forgetful& model) {
        train(model.parameters());
        freeze(model.second);
      },
      [&](Forgetful& model) {
        train(model.parameters());
        train(model.second.parameters());
      },
      [&](Forgetful& model) {  // only some of its parameters are trained
        train({model.second.bias()});
        model.names_second = true;
        model.parameters();
      },
      [&](Forgetful& model) {
        train(model.parameters());
        model.second.weight().set_name("second's, trained by hand");
        model.second.bias().set_name("and its bias");
      }};
  for (const auto& prepare : innocent) {
    Forgetful model;
    prepare(model);
    CHECK(message_of<TapeError>([&] { model.backward(); }) == "nothing was thrown");
  }
}

TEST_CASE("without gradients, or parameters, the norm is 0") {
  OptimCase model(DType::f32);
  AdamW optimizer(model.parameters()), empty({});
  CHECK(optimizer.clipped_step(0.1, 1, 1).item() == 0);
  CHECK(empty.clipped_step(0.1, 1, 1).item() == 0);
  CHECK(model.bias.value().at(0) == doctest::Approx(0.1));
}

TEST_CASE("rates and scales that are not finite, and limits below 0, are refused") {
  OptimCase model(DType::f32);
  model.set_gradients(0);
  AdamW optimizer(model.parameters());
  CHECK(message_of<Error>([&] { optimizer.step(std::nan("")); }) ==
        "[adamw] learning_rate must be finite; got nan");
  CHECK(message_of<Error>([&] { optimizer.clipped_step(INFINITY, 1, 1); }) ==
        "[adamw] learning_rate must be finite; got inf");
  CHECK(message_of<Error>([&] { optimizer.step(0.1, std::nan("")); }) ==
        "[adamw] gradient_scale must be finite; got nan");
  for (const double max_norm : {-1.0, std::nan("")}) {
    const std::string rule = format("max_norm must be at least 0; got {}; try 0 for no limit", max_norm);
    CHECK(message_of<Error>([&] { optimizer.clipped_step(0.1, 1, max_norm); }) == "[adamw] " + rule);
    CHECK(message_of<Error>([&] { clip_gradient_norm(model.parameters(), max_norm); }) == "[clip] " + rule);
  }
}

TEST_CASE("parameters are given once and are floating, all of one type") {
  CHECK_THROWS_WITH_AS(Sgd({Parameter(Tensor::zeros({2})), Parameter(Tensor::zeros({3}, DType::f64))}),
                       "[sgd] parameters must be all f32 or all f64; got f64[3] and f32[2]", DTypeError);
  const Parameter x(Tensor::zeros({2}));
  CHECK_THROWS_WITH_AS(Sgd({x, x}), "[sgd] a parameter must be given only once; got f32[2] twice", Error);
  CHECK_FALSE(x.state()->optimized);
  CHECK_THROWS_WITH_AS(AdamW({Parameter(Tensor::zeros({2}, DType::i32))}),
                       "[adamw] parameters must be f32 or f64; got i32[2]", DTypeError);
  OptimCase model(DType::f32);
  Sgd optimizer(model.parameters());
  model.set_gradients(0);
  model.weight.set_value(model.weight.value().to(DType::f64));  // and so only the bias has a gradient
  CHECK_THROWS_AS(optimizer.step(1), DTypeError);
}
