#pragma once

#include <tapeformer/autograd/kernels/dropout.h>
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/normalization.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/optim/adamw.h>
#include <tapeformer/optim/clip.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tapeformer {

using Sizes = std::vector<Index>;

/// What one call does, and what it has to compute and to move at least.
struct Work {
  double flops = 0, numbers = 0;  // numbers: read and written
  std::function<void()> run;
  bool in_place = false;  // nothing is written that was not read
};

struct Operation {
  const char* sizes;  // their names
  std::function<Work(const Sizes&, DType)> make;
};

inline Tensor random_tensor(const Shape& shape, DType type) {
  static Generator random(1);
  const Tensor x = Tensor::empty(shape, type);
  random.fill_uniform(x, -1, 1);
  return x;
}

inline Tensor random_ids(Index count, Index end) {
  Generator random(2);
  const Tensor ids = Tensor::empty({count}, DType::i32);
  for (Index i = 0; i < count; ++i)
    ids.data<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(end));
  return ids;
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

/// The gradients of `f` with respect to `of` alone, as often as one likes.
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

/// y [M, N] = x [M, K] w [N, K]^T + b: itself, or the gradient of x, or that of w.
inline Operation linear_operation(const std::string& which) {
  return {"M K N", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), w = random_tensor({n[2], n[1]}, type),
                         b = random_tensor({n[2]}, type);
            const Function f = [=] { return linear(x, w, which == "forward" ? b : Tensor()); };
            const double numbers = static_cast<double>(n[0] * n[1] + n[1] * n[2] + n[0] * n[2]);
            return Work{2 * product(n), numbers,
                        which == "forward" ? forward(f, {x, w, b}) : backward(f, {which == "dgrad" ? x : w})};
          }};
}

/// An operation on one tensor that reads and writes so many numbers for each of its own.
inline Operation map_operation(const char* sizes, Pass which, double numbers, Tensor (*f)(const Tensor&)) {
  return {sizes, [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor(n.size() == 1 ? Shape{n[0]} : Shape{n[0], n[1]}, type);
            return Work{0, numbers * product(n), pass(which, [=] { return f(x); }, {x})};
          }};
}

inline Operation layer_norm_operation(Pass which) {
  return {"ROWS N", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), w = random_tensor({n[1]}, type),
                         b = random_tensor({n[1]}, type);
            const Function f = [=] { return layer_norm(x, w, b); };
            return Work{0, (which == Pass::forward ? 2 : 3) * product(n), pass(which, f, {x, w, b})};
          }};
}

inline Operation cross_entropy_operation(Pass which) {
  return {"ROWS V", [=](const Sizes& n, DType type) {
            const Tensor x = random_tensor({n[0], n[1]}, type), ids = random_ids(n[0], n[1]);
            const Function f = [=] { return cross_entropy(x, ids); };
            return Work{0, (which == Pass::forward ? 1 : 2) * product(n), pass(which, f, {x}),
                        which == Pass::forward};
          }};
}

inline Operation embedding_operation(Pass which) {
  return {"COUNT V C", [=](const Sizes& n, DType type) {
            const Tensor table = random_tensor({n[1], n[2]}, type), ids = random_ids(n[0], n[1]);
            const double rows = static_cast<double>(n[0] * n[2]), all = static_cast<double>(n[1] * n[2]);
            const Function f = [=] { return embedding(table, ids); };
            return Work{0, which == Pass::forward ? 2 * rows : rows + all, pass(which, f, {table})};
          }};
}

/// Causal, on query, key and value side by side in one tensor, as layers have them.
inline Operation attention_operation(Pass which) {
  return {"B H T D", [=](const Sizes& n, DType type) {
            const Tensor packed = random_tensor({n[0], n[2], 3 * n[1] * n[3]}, type);
            const PackedHeads heads{n[1], n[1], n[3], n[3]};
            AttentionOptions options;
            options.causal = true;
            const Function f = [=] { return packed_attention(packed, heads, options); };
            const double flops = 2 * product(n) * static_cast<double>(n[2]), numbers = product(n);
            return which == Pass::forward ? Work{flops, 4 * numbers, forward(f, {packed})}
                                          : Work{2.5 * flops, 8 * numbers, backward(f, {packed})};
          }};
}

/// The parameters of nanoGPT's model, each with a gradient.
inline std::vector<Parameter> language_model_parameters(const Sizes& n, DType type) {
  const Index layers = n[0], width = n[1], vocabulary = n[2], context = n[3];
  std::vector<Parameter> parameters;
  const auto add_one = [&](const Shape& shape) {
    Parameter parameter(random_tensor(shape, type));
    parameter.state()->gradient = random_tensor(shape, type);
    parameter.state()->has_gradient = true;
    parameters.push_back(parameter);
  };
  for (const Shape& shape : {Shape{vocabulary, width}, Shape{context, width}, Shape{width}, Shape{width}})
    add_one(shape);
  for (Index layer = 0; layer < layers; ++layer) {
    for (const Index out : {3 * width, width, 4 * width}) add_one({out, width}), add_one({out});
    add_one({width, 4 * width});
    for (int i = 0; i < 5; ++i) add_one({width});
  }
  return parameters;
}

inline double count_of(const std::vector<Parameter>& parameters) {
  double count = 0;
  for (const Parameter& parameter : parameters) count += static_cast<double>(parameter.value().elements());
  return count;
}

inline Work adamw_step(const Sizes& n, DType type) {
  const auto optimizer = std::make_shared<AdamW>(language_model_parameters(n, type));
  return {0, 7 * count_of(optimizer->parameters()), [=] { optimizer->step(1e-4); }, true};
}

inline Work norm_of_gradients(const Sizes& n, DType type) {
  const std::vector<Parameter> parameters = language_model_parameters(n, type);
  return {0, count_of(parameters), [=] { gradient_norm(parameters); }, true};
}

inline Work residual_add(const Sizes& n, DType type) {
  const Tensor a = random_tensor({n[0]}, type), b = random_tensor({n[0]}, type);
  return {0, 3 * product(n), forward([=] { return a + b; }, {a, b})};
}

inline Work mask_making(const Sizes& n, DType type) {
  const Tensor mask = Tensor::empty({kernels::dropout_mask_words(n[0])}, DType::i32);
  const DropoutDraw draw = draw_dropout(0.2, {1, 2, 3});
  return {0, product(n) / 8 / static_cast<double>(bytes_of(type)), [=] {
            kernels::dropout_mask(kernels::Cpu{}, draw.stream, n[0], draw.dropped, mask.data<std::int32_t>());
          }};
}

inline Tensor dropped(const Tensor& x) { return dropout(x, 0.2, {1, 2, 3}); }
inline Tensor softmax_of_rows(const Tensor& x) { return softmax(x); }

/// By name.
inline const std::map<std::string, Operation>& operations() {
  constexpr Pass ahead = Pass::forward, back = Pass::backward;
  static const std::map<std::string, Operation> all{
      {"linear_forward", linear_operation("forward")},
      {"linear_dgrad", linear_operation("dgrad")},
      {"linear_wgrad", linear_operation("wgrad")},
      {"gelu_forward", map_operation("COUNT", ahead, 2, gelu)},
      {"gelu_backward", map_operation("COUNT", back, 3, gelu)},
      {"gelu_tanh_forward", map_operation("COUNT", ahead, 2, gelu_tanh)},
      {"gelu_tanh_backward", map_operation("COUNT", back, 3, gelu_tanh)},
      {"softmax_forward", map_operation("ROWS N", ahead, 2, softmax_of_rows)},
      {"softmax_backward", map_operation("ROWS N", back, 3, softmax_of_rows)},
      {"dropout_mask", {"COUNT", mask_making}},
      {"dropout_forward", map_operation("COUNT", ahead, 2, dropped)},
      {"dropout_backward", map_operation("COUNT", back, 2, dropped)},
      {"layer_norm_forward", layer_norm_operation(ahead)},
      {"layer_norm_backward", layer_norm_operation(back)},
      {"cross_entropy_forward", cross_entropy_operation(ahead)},
      {"cross_entropy_backward", cross_entropy_operation(back)},
      {"embedding_forward", embedding_operation(ahead)},
      {"embedding_backward", embedding_operation(back)},
      {"attention_forward", attention_operation(ahead)},
      {"attention_backward", attention_operation(back)},
      {"residual_add", {"COUNT", residual_add}},
      {"adamw_step", {"LAYERS C V T", adamw_step}},
      {"gradient_norm", {"LAYERS C V T", norm_of_gradients}},
  };
  return all;
}

}  // namespace tapeformer
