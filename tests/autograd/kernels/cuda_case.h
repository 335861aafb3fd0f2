#pragma once

#include <tapeformer/autograd/device.h>
#include <tapeformer/tests/autograd/ops/op_case.h>

#include <algorithm>
#include <vector>

namespace tapeformer {

/// For cases that need a GPU, real or emulated: says so and is false where there is none.
inline bool has_gpu() {
  if (cuda::device_count() > 0) return true;
  MESSAGE("skipped: " << cuda::availability());
  return false;
}

/// `x` on the GPU, `shift` elements behind where memory begins.
inline Tensor on_gpu(const Tensor& x, Index shift = 0) {
  const Index size = bytes_of(x.dtype());
  const Tensor base = Tensor::empty({x.elements() + shift}, x.dtype(), Device::cuda());
  char* const start = static_cast<char*>(base.state()->storage->data) + shift * size;
  const Handle<Storage> storage(
      new Storage(start, static_cast<std::size_t>(x.bytes()), [base] { static_cast<void>(base); }));
  storage->device = Device::cuda();
  const Tensor y = Tensor::adopt(storage, x.shape(), x.dtype());
  y.copy_from(x);
  return y;
}

/// Copies several tensors, in another type.
inline std::vector<Tensor> on_gpu(const std::vector<Tensor>& x, DType type, Index shift = 0) {
  std::vector<Tensor> there;
  for (const Tensor& input : x) there.push_back(on_gpu(input.to(type), shift));
  return there;
}

inline Tensor host_normal(const Shape& shape, Generator& random, DType type = DType::f64) {
  return random_normal(shape, random).to(Device::cpu()).to(type);
}

inline Tensor host_uniform(const Shape& shape, double low, double high, Generator& random) {
  return random_uniform(shape, low, high, random).to(Device::cpu());
}
/// Small whole numbers on the host: what is added up is exact in every type and order.
inline Tensor whole(const Shape& shape, Generator& random, Index most = 2) {
  const auto draw = [&](Index) { return static_cast<double>(random.below(2 * most + 1) - most); };
  return filled(shape, draw).to(Device::cpu());
}

/// The tensor on the host, as f64.
inline Tensor readable(const Tensor& x) { return x.to(Device::cpu()).to(DType::f64); }

inline bool same_values(const Tensor& a, const Tensor& b) {
  return absolute_error(readable(a), readable(b)) == 0;
}

/// The values of each of `got` are near those expected of it, as `error` measures it.
inline void check_near(const std::vector<Tensor>& got, const std::vector<Tensor>& expected, double most,
                       double (*error)(const Tensor&, const Tensor&) = relative_error) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK_BELOW(error(readable(got[i]), readable(expected[i])), most);
  }
}

using Function = Op;
/// f(x) and the gradients of sum(f(x) * dy).
inline std::vector<Tensor> with_gradients(const Function& f, const std::vector<Tensor>& x, const Tensor& dy,
                                          bool recorded = false) {
  OpResult result = run_op(f, x, dy, recorded);
  result.gradients.insert(result.gradients.begin(), result.y);
  return result.gradients;
}

/// f(x) and its gradients in f64 and f32 on the GPU are those in f64 on the CPU, as `error` measures it.
inline void check_as_on_cpu(const Function& f, const std::vector<Tensor>& x, const Tensor& dy, Index shift,
                            double most, double most_f32,
                            double (*error)(const Tensor&, const Tensor&) = relative_error) {
  const std::vector<Tensor> expected = with_gradients(f, x, dy);
  for (const DType type : {DType::f64, DType::f32}) {
    const std::vector<Tensor> got = with_gradients(f, on_gpu(x, type, shift), on_gpu(dy.to(type), shift));
    check_near(got, expected, type == DType::f64 ? most : most_f32, error);
  }
}

/// f in bf16 on the GPU against double: f(x) is at most twice, gradients at most three times as far off as
/// `naive` is, which takes each operation on its own, every result rounded to bf16; where f is one operation,
/// without a `naive`, f(x) rounded once and the gradient of a recorded pass. Where these happen to be exact,
/// a quarter of a unit in the last place is allowed. Inputs of f32 stay f32; f(x) is of the type `result`.
inline void check_bf16(const Function& f, const Function& naive, const std::vector<Tensor>& x,
                       const Tensor& dy, Index shift = 0, DType result = DType::bf16) {
  std::vector<Tensor> here, there;
  for (const Tensor& input : x) {
    there.push_back(on_gpu(input.dtype() == DType::f32 ? input : input.to(DType::bf16), shift));
    here.push_back(readable(there.back()));
  }
  const Tensor seed = on_gpu(dy.to(DType::bf16), shift);
  const std::vector<Tensor> exact = with_gradients(f, here, readable(seed));
  const std::vector<Tensor> plain = with_gradients(naive ? naive : f, there, seed, true);
  const std::vector<Tensor> got = with_gradients(f, there, seed);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].dtype() == (i == 0 ? result : there[i - 1].dtype()));
    const Tensor beside = i == 0 && !naive ? exact[0].to(DType::bf16) : plain[i];
    const double most = std::max(relative_error(readable(beside), exact[i]), 0x1p-9);
    CHECK_BELOW(relative_error(readable(got[i]), exact[i]), (i == 0 ? 2 : 3) * most);
  }
}

/// The gradient of a weight that operations read in bf16 is f32, near `exact`, and adds up over passes.
inline void check_shadow(const std::function<Tensor(const Tensor&)>& f, const Tensor& value, const Tensor& dy,
                         const Tensor& exact, double most) {
  Parameter weight(on_gpu(value.to(DType::f32)));
  weight.set_shadow(DType::bf16);
  for (int pass = 1; pass <= 2; ++pass) {
    Tape tape;
    tape.backward(f(weight), dy);
    CHECK(weight.gradient().dtype() == DType::f32);
    CHECK_BELOW(relative_error(readable(weight.gradient()), pass == 1 ? exact : add(exact, exact)), most);
  }
}

}  // namespace tapeformer
