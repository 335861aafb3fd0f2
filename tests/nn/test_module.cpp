#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

namespace {

/// Two layers in a list, one of them used twice, a parameter and a buffer of its own.
struct Net : Module {
  explicit Net(Generator random = Generator(test_seed(1)))
      : scale(Tensor::full({2}, 3)),
        shift(Tensor::full({2}, 0.5)),
        last({2, 2, true, {}}, random),
        dropout({0.5}, random) {
    layers.emplace_back(LinearConfig{2, 2, false, {}}, random);
    layers.emplace_back(LinearConfig{2, 2, true, {}}, random);
    last.weight() = layers[0].weight();
  }
  Tensor operator()(const Tensor& x) const {
    return dropout(last(layers[1](layers[0](x)) * scale.value() + shift));
  }
  void visit(ParameterVisitor& visitor) override {
    visitor.parameter("scale", scale);
    visitor.buffer("shift", shift);
    visitor.children(layers);
    visitor.child("last", last);
    visitor.child("dropout", dropout);
  }

  Parameter scale;
  Tensor shift;
  std::vector<Linear> layers;
  Linear last;
  Dropout dropout;
};

std::vector<std::string> names_of(const std::vector<std::pair<std::string, Parameter>>& parameters) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : parameters) names.push_back(name);
  return names;
}

}  // namespace

TEST_CASE("parameters are named by their path, in visiting order, and a tied one only once") {
  Net net;
  CHECK(names_of(net.named_parameters()) ==
        std::vector<std::string>{"scale", "0.weight", "1.weight", "1.bias", "last.bias"});
  CHECK(net.parameter_count() == 2 + 4 + 4 + 2 + 2);
  net.parameters()[0].set_trainable(false);
  CHECK(net.parameter_count() == 2 + 4 + 4 + 2 + 2);  // frozen ones too
}

TEST_CASE("parameters() writes the paths into the parameters, so that errors show them") {
  Net net;
  CHECK(net.layers[1].weight().name().empty());
  CHECK(net.parameters().size() == 5);
  CHECK(net.layers[1].weight().name() == "1.weight");
  CHECK(net.last.weight().name() == "0.weight");
  const std::string message = message_of<ShapeError>([&] { net.layers[1](Tensor::zeros({1, 3})); });
  CHECK(message.find("1.weight") != std::string::npos);
}

TEST_CASE("any visit names the parameters without a name, and keeps the others' names") {
  Net net;
  net.layers[1].bias().set_name("mine");
  net.eval();
  CHECK(net.layers[1].weight().name() == "1.weight");
  CHECK(net.layers[1].bias().name() == "mine");
  net.layers[1].train();
  CHECK(net.layers[1].weight().name() == "1.weight");
  net.parameters();
  CHECK(net.layers[1].bias().name() == "1.bias");
}

TEST_CASE("buffers and counters are found by name, and counters can be set") {
  Net net;
  CHECK(net.state().buffers == std::vector<Tensor*>{&net.shift});
  REQUIRE(net.named_counters().size() == 1);
  CHECK(net.named_counters()[0].first == "dropout.step");
  net(Tensor::zeros({1, 2}));
  CHECK(*net.named_counters()[0].second == 1);
  *net.named_counters()[0].second = 7;
  net(Tensor::zeros({1, 2}));
  CHECK(*net.named_counters()[0].second == 8);
}

TEST_CASE("train and eval reach the children") {
  Net net;
  CHECK(net.dropout.active_probability() == 0.5);
  net.eval();
  CHECK(net.dropout.active_probability() == 0);
  net.train();
  CHECK(net.dropout.active_probability() == 0.5);
}

TEST_CASE("to() converts every parameter and keeps ties") {
  Net net;
  const Tensor before = net.last.weight().value().clone();
  net.to(DType::f64);
  for (const auto& [name, parameter] : net.named_parameters()) CHECK(parameter.value().dtype() == DType::f64);
  CHECK(absolute_error(net.last.weight().value(), before) == 0);
  CHECK(net.last.weight() == net.layers[0].weight());
}

TEST_CASE("a model that moves takes parameters and buffers along, tied ones once, and drops gradients") {
  Net net;
  const auto before = weights_of(net);
  net.scale.state()->require_gradient_buffer();
  net.scale.state()->has_gradient = true;
  const Device there = cuda::device_count() > 0 ? Device::cuda() : Device::cpu();
  net.to(Device::cpu());
  CHECK_FALSE(net.scale.gradient().defined());
  for (const Device device : {there, Device::cpu(), there}) {
    net.to(device);
    CHECK(net.shift.device() == device);
    CHECK(net.shift.to_vector<float>() == std::vector<float>{0.5, 0.5});
    CHECK(net.last.weight() == net.layers[0].weight());
    const auto now = net.named_parameters();
    REQUIRE(now.size() == before.size());
    for (std::size_t i = 0; i < now.size(); ++i) {
      CHECK(now[i].second.value().device() == device);
      CHECK(now[i].second.value().to_vector<float>() == before[i].second.to_vector<float>());
    }
  }
}

TEST_CASE("computing in bf16 gives every parameter a shadow, which moves with it") {
  Net net;
  net.compute_in(DType::bf16);
  const Device there = cuda::device_count() > 0 ? Device::cuda() : Device::cpu();
  net.to(there);
  for (const auto& [name, parameter] : net.named_parameters()) {
    CHECK(parameter.value().dtype() == DType::f32);
    CHECK(parameter.used().dtype() == DType::bf16);
    CHECK(parameter.used().device() == there);
  }
  CHECK(net.last.weight().used().state() == net.layers[0].weight().used().state());
  net.compute_in(DType::f32);
  for (const auto& [name, parameter] : net.named_parameters()) CHECK(parameter.used().dtype() == DType::f32);
}
