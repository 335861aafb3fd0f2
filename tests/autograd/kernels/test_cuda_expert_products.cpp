#include <tapeformer/autograd/ops/experts.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/emulator/in_order.h>
#include <tapeformer/tests/reference/sanitized.h>

#include <numeric>

using namespace tapeformer;

namespace {

/// Sums of up to 256 products are exact in bf16.
Tensor signs(const Shape& shape, Generator& random) { return whole(shape, random, 1); }

/// Rows of each expert.
struct Loads {
  Tensor starts;
  Index experts, rows;
};
Loads loads_of(const std::vector<std::int32_t>& rows) {
  std::vector<std::int32_t> starts(rows.size() + 1, 0);
  std::partial_sum(rows.begin(), rows.end(), starts.begin() + 1);
  const auto experts = static_cast<Index>(rows.size());
  return {Tensor::from(starts, {experts + 1}).to(Device::cpu()), experts, starts.back()};
}
Function products(const Loads& loads) {
  return [starts = loads.starts](const auto& in) {
    return expert_linear(in[0], in[1], starts.to(in[0].device()));
  };
}

/// Results and gradients in `type` on the GPU are those on the CPU, and the weight's gradients add up in f32.
void check_exact(const Loads& loads, Index k, Index n, DType type, Index shift, Generator& random) {
  CAPTURE(loads.rows);
  CAPTURE(k);
  CAPTURE(n);
  CAPTURE(name_of(type));
  const std::vector<Tensor> x{signs({loads.rows, k}, random), signs({loads.experts, n, k}, random)};
  const Tensor dy = signs({loads.rows, n}, random);
  const Function f = products(loads);
  const std::vector<Tensor> expected = with_gradients(f, x, dy), there = on_gpu(x, type, shift);
  const Tensor seed = on_gpu(dy.to(type), shift);
  const std::vector<Tensor> got = with_gradients(f, there, seed);
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(same_values(got[i], expected[i]));
  }
  Parameter weight(on_gpu(x[1].to(type == DType::bf16 ? DType::f32 : type)));
  if (type == DType::bf16) weight.set_shadow(DType::bf16);
  for (int pass = 1; pass <= 2; ++pass) {
    Tape tape;
    tape.backward(f({there[0], weight}), seed);
    CHECK(same_values(weight.gradient(), affine(expected[2], pass, 0)));
  }
}

}  // namespace

TEST_CASE("tiles of rows, columns and sums that are full, parts or missing") {
  Generator random(test_seed(1));
  const Loads loads = loads_of({0, 127, 129, 0, 1, 0});
  const Index sizes[][2] = {{72, 136}, {8, 8}, {64, 128}, {200, 256}, {33, 130}, {136, 24}};
  for (const auto& size : sizes) {
    if (!is_tried(&size - sizes)) continue;
    check_exact(loads, size[0], size[1], DType::bf16, 0, random);
    check_exact(loads, size[0], size[1], DType::f32, 1, random);
  }
  check_exact(loads, 72, 136, DType::bf16, 1, random);
  check_exact(loads, 72, 136, DType::f64, 1, random);
}

TEST_CASE("any numbers of rows, of one expert and of many") {
  Generator random(test_seed(2));
  std::vector<std::vector<std::int32_t>> cases{{130}, {0, 0, 256}, {256, 0, 0}, {0, 0}, {128, 128, 128}};
  cases.emplace_back(70, 1);
  for (const Index most : {3, 140}) {
    cases.emplace_back();
    for (int e = 0; e < 10; ++e) cases.back().push_back(static_cast<std::int32_t>(random.below(most)));
  }
  for (const auto& rows : cases) {
    for (const DType type : {DType::bf16, DType::f32}) check_exact(loads_of(rows), 16, 8, type, 0, random);
  }
}

TEST_CASE("the same bits in any order of blocks and threads") {
  if (tries_few()) return;
  Generator random(test_seed(3));
  const Loads loads = loads_of({70, 0, 140});
  for (const DType type : {DType::bf16, DType::f32}) {
    const std::vector<Tensor> x =
        on_gpu({host_normal({210, 72}, random), host_normal({3, 136, 72}, random)}, type);
    const Tensor dy = on_gpu(host_normal({210, 136}, random, type));
    const std::vector<Tensor> once = with_gradients(products(loads), x, dy);
    const InOrder another(11);
    const std::vector<Tensor> again = with_gradients(products(loads), x, dy);
    for (std::size_t i = 0; i < once.size(); ++i) CHECK(same_values(again[i], once[i]));
  }
}
