// A layer of your own: parameters, saved and loaded by name.
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/formats/checkpoint.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/optim/adamw.h>

#include <cstdio>

using namespace tapeformer;

/// Keeps a share of its input and replaces the rest, component by component.
/// Math:    g = sigmoid(gate(x) + opening), y = g * tanh(new_value(x)) + (1 - g) * x
/// Shapes:  x [..., C] -> y [..., C]
/// Initial: opening -2, so that at first little is replaced
/// Source:  Srivastava et al. 2015, arXiv:1505.00387
class Highway : public Module {
 public:
  Highway(Index width, Generator& random)
      : gate_({width, width, false}, random),
        new_value_({width, width}, random),
        opening_(Tensor::full({width}, -2)) {}

  Tensor operator()(const Tensor& x) const {
    const Tensor g = sigmoid(gate_(x) + opening_);
    return g * tanh(new_value_(x)) + (1 - g) * x;
  }
  /// Names everything once. Optimizers, files, types and devices all go by this.
  void visit(ParameterVisitor& visitor) override {
    visitor.child("gate", gate_);
    visitor.child("new_value", new_value_);
    visitor.parameter("opening", opening_);
  }

 private:
  Linear gate_, new_value_;
  Parameter opening_;
};

/// Every parameter and the input against central differences in double.
bool gradients_are_right() {
  Generator random(1);
  Highway layer(4, random);
  layer.to(DType::f64);
  const Tensor x_bc = Tensor::randn({3, 4}, random, DType::f64);
  auto inputs = weights_of(layer);  // each parameter by its name
  inputs.emplace_back("x", x_bc);
  return gradcheck([&] { return layer(x_bc); }, inputs).passed();
}

int main(int argc, char** argv) {
  std::printf("gradients: %s\n", gradients_are_right() ? "passed" : "FAILED");

  Generator random(1);
  Highway layer(8, random);
  for (const auto& [name, parameter] : layer.named_parameters())
    std::printf("  %-18s %s\n", name.c_str(), parameter.value().shape().text().c_str());

  const Tensor x_bc = Tensor::randn({64, 8}, random), target_bc = -0.5 * tanh(x_bc);
  AdamW optimizer(layer.parameters());
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    optimizer.clear_gradients();
    Tape tape;
    const Tensor error = layer(x_bc) - target_bc, loss = mean(error * error);
    tape.backward(loss);
    optimizer.step(1e-2);
    (step == 0 ? first : last) = loss.item();
  }
  std::printf("loss %.2f, after 200 steps %.2f\n", first, last);

  const std::string file = argc > 1 ? argv[1] : "highway.safetensors";
  save_weights(file, layer);
  Highway loaded(8, random);
  load_weights(file, loaded);
  const bool same = loaded(x_bc).to_vector<float>() == layer(x_bc).to_vector<float>();
  std::printf("saved and loaded: %s\n", same ? "the same" : "DIFFERENT");
  return same && gradients_are_right() && last < first / 4 ? 0 : 1;
}
