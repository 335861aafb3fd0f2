#pragma once

#include <tapeformer/autograd/device.h>
#include <tapeformer/nn/dropout.h>
#include <tapeformer/nn/module.h>
#include <tapeformer/tests/nn/module_case.h>

namespace tapeformer {

/// 40 numbers, for a body to compute with; and a layer that drops.
class SmallModel : public Module {
 public:
  explicit SmallModel(double probability = 0.5) : SmallModel(probability, Generator(test_seed(3))) {}
  void visit(ParameterVisitor& visitor) override {
    visitor.parameter("weight", weight);
    visitor.child("dropout", dropout);
  }
  Parameter weight;
  Dropout dropout;

 private:
  SmallModel(double probability, Generator random)
      : weight(Tensor::full({40}, 3, DType::f64, Device::cuda())), dropout({probability}, random) {}
};

inline std::vector<Tensor> only(const Tensor& x) { return {x}; }
inline Tensor numbers(double value) { return Tensor::full({40}, value, DType::f64, Device::cuda()); }

inline bool same(const Tensor& a, const Tensor& b) {
  return same_bits(a.to(Device::cpu()), b.to(Device::cpu()));
}

}  // namespace tapeformer
