#pragma once

#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/kernels/dropout.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/experts.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/residual_norm.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>

#include <algorithm>

namespace tapeformer {

using Sizes = std::vector<Index>;

/// One call, with the least operations and bytes that it needs.
struct Work {
  double flops = 0, numbers = 0;  // numbers of the case's type: read and written
  std::function<void()> run;
  bool in_place = false;   // writes only numbers that it has read
  double other_bytes = 0;  // of other types
};

struct Operation {
  const char* sizes;  // their names
  std::function<Work(const Sizes&, DType)> make;
};

/// Address of element `first`.
inline void* address_of(const Tensor& x, Index first) {
  switch (x.dtype()) {
    case DType::f64: return x.address<double>() + first;
    case DType::bf16: return x.address<BFloat16>() + first;
    default: return x.address<float>() + first;
  }
}

/// A GPU's large tensors repeat the drawn numbers: the host would take seconds.
inline Tensor random_tensor(const Shape& shape, DType type) {
  static Generator random(1);
  constexpr Index kDrawn = Index{1} << 22;
  const Device device = default_device();
  const Index count = shape.elements();
  const bool repeats = device.is_cuda() && count > kDrawn;
  const Tensor drawn =
      Tensor::empty(repeats ? Shape{kDrawn} : shape, type == DType::bf16 ? DType::f32 : type, Device::cpu());
  random.fill_uniform(drawn, -1, 1);
  const Tensor x = drawn.to(device).to(type);
  if (!repeats) return x;
  const Tensor all = Tensor::empty(shape, type, device);
  for (Index first = 0; first < count; first += kDrawn)
    cuda::copy(device.index, address_of(all, first), address_of(x, 0),
               static_cast<std::size_t>(std::min(kDrawn, count - first) * bytes_of(type)));
  return all;
}

inline Tensor random_ids(Index count, Index end) {
  Generator random(2);
  const Tensor ids = Tensor::empty({count}, DType::i32, Device::cpu());
  for (Index i = 0; i < count; ++i)
    ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(end));
  return ids.to(default_device());
}

using Function = std::function<Tensor()>;

/// `f` as training runs it, recorded on a tape that watches `of`.
inline std::function<void()> forward(const Function& f, const std::vector<Tensor>& of) {
  return [=] {
    Tape tape;
    for (const Tensor& x : of) tape.watch(x);
    f();
  };
}

/// The gradients of `f` only with respect to `of`, any number of times.
inline std::function<void()> backward(const Function& f, const std::vector<Tensor>& of) {
  const auto tape = std::make_shared<Tape>();
  for (const Tensor& x : of) tape->watch(x);
  const Tensor y = f();
  const Tensor dy = y.rank() == 0 ? Tensor() : random_tensor(y.shape(), y.dtype());
  return [=] { tape->gradients(y, of, dy); };
}

enum class Pass { forward, backward };

inline std::function<void()> pass(Pass which, const Function& f, const std::vector<Tensor>& of) {
  return which == Pass::forward ? forward(f, of) : backward(f, of);
}

inline double product(const Sizes& n) {
  double result = 1;
  for (const Index size : n) result *= static_cast<double>(size);
  return result;
}

}  // namespace tapeformer
