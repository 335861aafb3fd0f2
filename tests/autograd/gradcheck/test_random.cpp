#include <doctest/doctest.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/tests/reference/support.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

using namespace tapeformer;

namespace {

using Piece = std::function<Tensor(const Tensor&)>;

/// One to four random pieces, one after another, each smooth and with parameters of its own. Temperatures go
/// up to e^4 and divisors down to 0.05, so that many differences are too coarse at the usual step.
class RandomLayer {
 public:
  explicit RandomLayer(std::uint64_t seed) : random_(seed) {
    width_ = 2 + random_.below(3);
    x_ = input("x", {2 + random_.below(2), width_}, 0, 1);
    for (Index left = 1 + random_.below(4); left > 0; --left) pieces_.push_back(piece());
  }

  Tensor operator()() const {
    Tensor y = x_;
    for (const auto& piece : pieces_) y = piece(y);
    return y;
  }
  const std::vector<std::pair<std::string, Tensor>>& inputs() const { return inputs_; }

 private:
  Tensor input(const std::string& name, const Shape& shape, double mean, double deviation) {
    const Tensor x = Tensor::empty(shape, DType::f64);
    random_.fill_normal(x, mean, deviation);
    inputs_.emplace_back(name + std::to_string(inputs_.size()), x);
    return x;
  }
  Tensor square(const std::string& name) { return input(name, {width_, width_}, 0, 0.7); }
  Tensor number(const std::string& name, double low, double high) {
    return input(name, {1}, low + (high - low) * random_.uniform(), 0);
  }
  Piece piece();
  Piece attention();

  Generator random_;
  Index width_;
  Tensor x_;
  std::vector<std::pair<std::string, Tensor>> inputs_;
  std::vector<Piece> pieces_;
};

Tensor of_unit_length(const Tensor& x) { return x / sqrt(sum(x * x, {-1}, true) + 1e-6); }

/// Attention by cosines with a learned temperature, or by queries and keys that are normalised.
Piece RandomLayer::attention() {
  const Tensor query = square("query"), key = square("key"), value = square("value");
  if (random_.below(2) == 0) {
    const Tensor temperature = number("temperature", 0, 4);
    return [=](const Tensor& x) {
      const Tensor cosines =
          matmul(of_unit_length(matmul(x, query)), transpose(of_unit_length(matmul(x, key))));
      return matmul(softmax(cosines * exp(temperature)), matmul(x, value));
    };
  }
  const Tensor gain = input("gain", {width_}, 1 + 2 * random_.uniform(), 0.2);
  return [=](const Tensor& x) {
    const auto heads = [](const Tensor& of) { return reshape(of, {1, of.size(0), 1, of.size(1)}); };
    const Tensor y =
        scaled_dot_product_attention(heads(rms_norm(matmul(x, query), gain)),
                                     heads(rms_norm(matmul(x, key), gain)), heads(matmul(x, value)));
    return reshape(y, x.shape());
  };
}

Piece RandomLayer::piece() {
  switch (random_.below(5)) {
    case 0: {
      const Tensor weight = square("weight"), bias = input("bias", {width_}, 0, 0.5);
      return [=](const Tensor& x) { return linear(x, weight, bias); };
    }
    case 1: {
      const Tensor temperature = number("temperature", 0, 4);
      return [=](const Tensor& x) { return softmax(x * exp(temperature)); };
    }
    case 2: {
      const Tensor factor = number("factor", 0.5, 20);
      return [=](const Tensor& x) { return tanh(x * factor) + x; };
    }
    case 3: {
      const Tensor weight = square("weight");
      const double least = 0.05 + random_.uniform();
      return [=](const Tensor& x) { return x / (least + pow(matmul(x, weight), 2)); };
    }
    default: return attention();
  }
}

/// None may be called wrong. Rarely, pieces that cancel the growth of others round too much to tell.
void check_random_layers(int count) {
  int untold = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t seed = test_seed(static_cast<std::uint64_t>(i));
    const RandomLayer layer(seed);
    GradcheckOptions options;
    options.second_order = options.forward = true;
    options.seed = seed;
    const GradcheckReport report = gradcheck(layer, layer.inputs(), options);
    INFO(seed, "\n", report.text());
    CHECK(report.text().find("WRONG") == std::string::npos);
    untold += report.passed() ? 0 : 1;
  }
  CHECK(untold <= 1 + count / 1000);
}

}  // namespace

TEST_CASE("random smooth layers pass") { check_random_layers(100); }
TEST_CASE("slow: ten thousand random smooth layers pass") { check_random_layers(10'000); }
