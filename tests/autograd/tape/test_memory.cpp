#include <doctest/doctest.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/activation_checkpointing.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/tests/reference/support.h>

#include <algorithm>
#include <sstream>

using namespace tapeformer;

namespace {

std::int64_t in_use() {
  const Device device = default_device();
  return device.is_cuda() ? cuda::memory_statistics(device.index).in_use_bytes
                          : pool_statistics().in_use_bytes;
}

/// With the address sanitizer the pool is not used and counts nothing.
bool pool_counts_tensors() {
  const auto before = in_use();
  const Tensor x = Tensor::zeros({1});
  return in_use() != before;
}

constexpr Index kElements = 1 << 16;
constexpr std::int64_t kBytes = kElements * 8;

}  // namespace

TEST_CASE("memory() counts nodes and the distinct storages that they saved") {
  const Parameter x(values({1, 2, 3}));
  const Tensor constant = values({4, 5, 6});
  Tape tape;
  CHECK(tape.memory().nodes == 0);
  const Tensor product = x * constant;  // saves x and the constant
  CHECK(tape.memory().nodes == 1);
  CHECK(tape.memory().saved_bytes == 48);
  const Tensor square = x * x;  // saves x, which is counted already
  CHECK(tape.memory().nodes == 2);
  CHECK(tape.memory().saved_bytes == 48);
  const Tensor grown = exp(product + square);  // the sum saves nothing, exp its output
  CHECK(tape.memory().nodes == 4);
  CHECK(tape.memory().saved_bytes == 72);
  tape.backward(sum(grown));
  CHECK(tape.memory().nodes == 0);
  CHECK(tape.memory().saved_bytes == 0);
}

TEST_CASE("memory() counts parameters apart, and frozen ones not at all") {
  const Parameter x(values({1, 2, 3}));
  Parameter frozen(values({4, 5, 6}));
  frozen.set_trainable(false);
  Tape tape;
  const Tensor product = x * frozen;
  CHECK(tape.memory().saved_bytes == 24);
  CHECK(tape.memory().parameter_bytes == 24);
  tape.backward(sum(product));
  CHECK(x.gradient().to_vector<double>() == std::vector<double>{4, 5, 6});
}

TEST_CASE("memory() counts the bf16 copy of a parameter that operations read as the parameter") {
  Parameter x(Tensor::zeros({3}));
  x.set_shadow(DType::bf16);
  Tape tape;
  record("copy", {x}, {x}, Tensor::zeros({3}), [](const Tensor&, const Gradients&) {});
  CHECK(tape.memory().saved_bytes == 6);
  CHECK(tape.memory().parameter_bytes == 6);
}

TEST_CASE("print shows a line per node: its operation, its inputs, and the bytes it keeps") {
  Parameter x(Tensor::zeros({2, 3}));
  x.set_name("encoder.weight");
  const Tensor constant = Tensor::zeros({3});
  Tape tape;
  const TensorList parts = split(exp(x * constant), 1, {1, 2});
  std::ostringstream text;
  tape.print(text);
  CHECK(text.str() ==
        "%1 f32[2,3] = multiply(encoder.weight, constant)  saves 36 bytes\n"
        "%2 f32[2,3] = exp(%1)  saves 24 bytes\n"
        "%3 f32[2,1], %4 f32[2,2] = split(%2)  saves 0 bytes\n");
}

TEST_CASE("saved tensors live as long as the tape needs them, and no longer") {
  if (!pool_counts_tensors()) return;
  const Parameter x(Tensor::full({kElements}, 0.5, DType::f64));
  const auto before = in_use();
  {
    Tape tape;
    Tensor y = x;
    for (int i = 0; i < 8; ++i) y = exp(-y);  // each exp keeps its output
    y = Tensor();
    CHECK(in_use() - before >= 8 * kBytes);
    CHECK(in_use() - before < 10 * kBytes);
  }
  CHECK(in_use() == before);
}

TEST_CASE("backward frees each node as soon as it has run") {
  if (!pool_counts_tensors()) return;
  const Parameter x(Tensor::full({kElements}, 0.5, DType::f64));
  {
    Tape first;
    first.backward(sum(x * 1.0));  // the parameter's gradient stays from here on
  }
  const auto before = in_use();
  std::vector<std::int64_t> used;
  {
    Tape tape;
    Tensor y = x;
    for (int i = 0; i < 8; ++i) {
      y = exp(-y);
      y = record("probe", {y}, {}, y * 1.0, [&](const Tensor& dy, const Gradients& into) {
        used.push_back(in_use() - before);
        into[0] += dy;
      });
    }
    const Tensor loss = sum(y);
    y = Tensor();
    tape.backward(loss);
    CHECK(in_use() - before < kBytes);
  }
  CHECK(in_use() == before);
  REQUIRE(used.size() == 8);
  for (std::size_t i = 1; i < used.size(); ++i) CHECK(used[i] <= used[i - 1] - kBytes);
  CHECK(used.back() < 4 * kBytes);
}

TEST_CASE("the activations of a body are freed, until a pass needs them, layer by layer") {
  if (!pool_counts_tensors()) return;
  constexpr int kLayers = 8, kOperations = 8;
  const Parameter a(Tensor::full({kElements}, 0.5, DType::f64));
  {
    Tape first;
    first.backward(sum(a * 1.0));  // the parameter's gradient stays from here on
  }
  const auto before = in_use();
  std::int64_t most[2] = {};
  for (const bool recompute : {false, true}) {
    Tape tape;
    Tensor h = a;
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto body = [&, h] {
        Tensor y = h;
        for (int i = 0; i < kOperations; ++i) {
          y = exp(-y);  // keeps its output
          y = record("probe", {y}, {}, y * 1.0, [&](const Tensor& dy, const Gradients& into) {
            most[recompute] = std::max(most[recompute], in_use() - before);
            into[0] += dy;
          });
        }
        return y;
      };
      h = recompute ? checkpoint({h}, body) : body();
    }
    const Index kept = recompute ? kLayers : kLayers * kOperations;  // inputs of layers; results of exp
    CHECK(tape.memory().saved_bytes == kept * kBytes);
    const Tensor loss = sum(h);
    h = Tensor();
    tape.backward(loss);
    CHECK(in_use() - before < kBytes);
  }
  CHECK(in_use() == before);
  CHECK(most[0] >= kLayers * kOperations * kBytes);
  CHECK(most[1] < (kLayers + kOperations + 1) * kBytes);
}

TEST_CASE("gradients take over buffers: a chain of additions needs one") {
  if (!pool_counts_tensors()) return;
  const Tensor x = Tensor::full({kElements}, 0.5, DType::f64);
  std::vector<const void*> buffers;
  Tape tape;
  tape.watch(x);
  Tensor y = x * 2.0;
  for (int i = 0; i < 4; ++i) {
    y = record("probe", {y}, {}, y * 1.0, [&](const Tensor& dy, const Gradients& into) {
      buffers.push_back(dy.raw());
      into[0] += dy;
    });
  }
  tape.gradients(y, {x}, Tensor::full({kElements}, 1, DType::f64));
  REQUIRE(buffers.size() == 4);
  for (const void* buffer : buffers) CHECK(buffer == buffers[0]);
}

TEST_CASE("a second gradient is added in place by the sole owner of the first") {
  const Tensor x = values({1, 2, 3});
  const void* first = nullptr;
  const void* total = nullptr;
  Tape tape;
  tape.watch(x);
  const Tensor y = record("total", {x}, {}, x * 1.0, [&](const Tensor& dy, const Gradients& into) {
    total = dy.raw();
    into[0] += dy;
  });
  const Tensor early = y * 3.0;
  const Tensor late = record("first", {y}, {}, y * 2.0, [&](const Tensor& dy, const Gradients& into) {
    const Tensor doubled = 2.0 * dy;
    first = doubled.raw();
    into[0] += doubled;
  });
  const Tensor gradient = tape.gradients(sum(early) + sum(late), {x})[0];
  CHECK(gradient.to_vector<double>() == std::vector<double>{5, 5, 5});
  CHECK(first == total);
}
