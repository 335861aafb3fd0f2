#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <algorithm>
#include <cmath>

using namespace tapeformer;

namespace {

Tensor softmax_of(const std::vector<Tensor>& x) { return softmax(x[0]); }
Tensor log_softmax_of(const std::vector<Tensor>& x) { return log_softmax(x[0]); }
/// One operation after the other, each result rounded.
Tensor plain_log_softmax(const std::vector<Tensor>& x) {
  const Tensor shifted = x[0] - max(x[0], {-1}, true).detach();
  return shifted - log(sum(exp(shifted), {-1}, true));
}
Tensor plain_softmax(const std::vector<Tensor>& x) {
  const Tensor e = exp(x[0] - max(x[0], {-1}, true).detach());
  return e / sum(e, {-1}, true);
}

/// Whole numbers from -8 to 7, whose sums are exact in any order.
Tensor whole_numbers(const Shape& shape, Generator& random) {
  const Tensor x = Tensor::empty(shape, DType::f64, Device::cpu());
  for (Index i = 0; i < x.elements(); ++i) x.data<double>()[i] = static_cast<double>(random.below(16)) - 8;
  return x;
}

/// Sums and maxima over the middle axis of x [outer, n, inner] are the CPU's, whatever is in front of x.
void check_reductions(const Shape& shape, Generator& random) {
  CAPTURE(shape.text());
  const Tensor x = whole_numbers(shape, random);
  const Tensor total = sum(x, {1}), largest = max(x, {1});
  for (const DType type : {DType::f32, DType::f64, DType::bf16}) {
    CAPTURE(name_of(type));
    const Tensor there = on_gpu(x.to(type), 1);
    CHECK(same_values(sum(there, {1}), total.to(type)));
    CHECK(same_values(max(there, {1}), largest));
  }
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_rows") {
  TEST_CASE("softmax and its logarithm in bf16, of rows that a warp and that a block takes") {
    Generator random(test_seed(1));
    // 16 bytes hold 8: rows that threads hold in packs, from one for some lanes to four for all of a block.
    for (const Index n :
         {1, 8, 31, 32, 33, 257, 264, 512, 520, 776, 1024, 1025, 1032, 2056, 4099, 4104, 8200}) {
      for (const Index rows : {1, 9}) {
        if (n > 2000 && rows > 1) continue;
        CAPTURE(n);
        CAPTURE(rows);
        const Tensor x = affine(host_normal({rows, n}, random), 3, 0), dy = host_normal({rows, n}, random);
        check_bf16(softmax_of, plain_softmax, {x}, dy, n % 3);
        check_bf16(softmax_of, plain_softmax, {x}, dy);
        check_bf16(log_softmax_of, plain_log_softmax, {x}, dy);
        check_bf16(log_softmax_of, plain_log_softmax, {x}, dy, 1);
      }
    }
  }

  TEST_CASE("rows of minus infinities become zeros in bf16, without gradient, between rows that do not") {
    for (const Index n : {3, 40, 1100, 2400, 9000}) {
      const Tensor x = filled({3, n}, [&](Index i) {
        return i / n == 1 || i % n == 1 ? -INFINITY : 0.1 * static_cast<double>(i % 7);
      });
      const Tensor dy = filled({3, n}, [](Index i) { return static_cast<double>(i % 5); });
      const std::vector<Tensor> got =
          with_gradients(softmax_of, {on_gpu(x.to(DType::bf16))}, on_gpu(dy.to(DType::bf16)));
      const Tensor y = readable(got[0]), dx = readable(got[1]);
      for (Index i = 0; i < 3 * n; ++i) {
        const bool masked = i / n == 1 || i % n == 1;
        CHECK((y.at(i) == 0) == masked);
        if (masked) CHECK(dx.at(i) == 0);
      }
      const Tensor logarithm = readable(log_softmax(on_gpu(x.to(DType::f32))));
      for (Index i = 0; i < 3 * n; ++i) CHECK(std::isinf(logarithm.at(i)) == (i / n == 1 || i % n == 1));
    }
  }

  TEST_CASE("sums and maxima along rows and columns, in one step and in parts") {
    Generator random(test_seed(2));
    for (const Index n : {1, 31, 32, 33, 257, 4099}) {
      for (const Index inner : {1, 2, 31, 33, 65}) check_reductions({2, n, inner}, random);
    }
    // Parts of several sizes, the last one shorter.
    for (const Shape& shape : {Shape{1, 4096, 1}, Shape{1, 4097, 1}, Shape{1, 10007, 1}, Shape{3, 8191, 1},
                               Shape{1, 128, 40}, Shape{1, 1027, 40}, Shape{5, 777, 3}, Shape{1, 70001, 1}})
      check_reductions(shape, random);
  }

  TEST_CASE("rows and columns beyond what one grid covers are reached") {
    if (fewer_if_sanitized(4) < 4) return;
    // A warp a row, a block a row, a block for some columns of one row.
    for (const Shape& shape : {Shape{32800, 3, 1}, Shape{4099, 1025, 1}, Shape{4099, 2, 2}}) {
      const Tensor x = Tensor::full(shape, 1, DType::f32, Device::cuda());
      const std::vector<float> totals = sum(x, {1}).to_vector<float>();
      CHECK(std::count(totals.begin(), totals.end(), static_cast<float>(shape[1])) == shape[0] * shape[2]);
    }
    const std::vector<float> y =
        softmax(Tensor::zeros({32800, 2}, DType::f32, Device::cuda())).to_vector<float>();
    CHECK(std::count(y.begin(), y.end(), 0.5F) == 2 * 32800);
  }

  TEST_CASE("bf16 is summed in f32, and rounded once, over several axes too") {
    Generator random(test_seed(4));
    const Tensor x = on_gpu(host_normal({33, 5, 257}, random).to(DType::bf16));
    for (const Axes& axes : {Axes{}, Axes{0}, Axes{2}, Axes{0, 2}}) {
      const Tensor exact = sum(readable(x), axes);
      CHECK_BELOW(relative_error(readable(sum(x, axes)), exact), 0x1p-8 + 1e-6);
    }
    CHECK(sum(Tensor::full({4099}, 1, DType::bf16, Device::cuda())).item() == 4096);  // 4099, rounded
    CHECK(sum(Tensor::full({1000}, 1.00390625, DType::f32, Device::cuda())).item() == 1003.90625);
    const Function mean_of = [](const auto& in) { return mean(in[0], {0}); };
    const Tensor many = host_normal({257, 7}, random), dy = host_normal({7}, random);
    check_bf16(mean_of, {}, {many}, dy);
  }

  TEST_CASE("a NaN is the largest, wherever it stands, in one step and in parts") {
    for (const Index at : {0, 33, 4098, 9999}) {
      const Tensor x = Tensor::full({10000}, -1, DType::f32, Device::cpu());
      x.data<float>()[at] = NAN;
      CHECK(std::isnan(max(on_gpu(x)).item()));
      CHECK(std::isnan(max(on_gpu(x.alias({5000, 2})), {0}).at(at % 2)));
      CHECK(max(on_gpu(x.alias({5000, 2})), {0}).at(1 - at % 2) == -1);
    }
    CHECK(max(Tensor::full({40}, -INFINITY, DType::bf16, Device::cuda())).item() == -INFINITY);
  }

  TEST_CASE("the same bits twice") {
    Generator random(test_seed(5));
    const Tensor x = on_gpu(host_normal({3001, 70}, random, DType::f32));
    for (const auto& run :
         {+[](const Tensor& t) { return sum(t, {0}); }, +[](const Tensor& t) { return sum(t); },
          +[](const Tensor& t) { return softmax(t); }}) {
      const Tensor first = run(x);
      CHECK(same_values(run(x), first));
    }
  }
}
