#include <cuda_emulator.h>
#include <tapeformer/autograd/kernels/cuda/attention/paths.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/tests/autograd/kernels/attention_forward_case.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <cmath>

using namespace tapeformer;

namespace {

const int kCasesOfWidth = random_cases(4), kLongCases = random_cases(6);

/// One attention in bf16 as the kernels have it; the gradients hold something already.
struct KernelCase {
  Tensor query, key, value, y, log_sum, dy, dquery, dkey, dvalue;
  AttentionPlan plan;

  KernelCase(const AttentionInputs& in, const AttentionOptions& options, const Tensor& seed,
             double old = kNan) {
    plan = plan_attention({in.B(), in.T(), in.S(), in.H(), in.G(), in.query.size(3), in.value.size(3)},
                          options_on_gpu(options), Device::cuda());
    const auto there = [&](const Tensor& x) { return on_gpu(x.to(DType::bf16)); };
    const auto filled_there = [&](const Shape& shape) {
      return there(Tensor::full(shape, old, DType::f64, Device::cpu()));
    };
    query = there(in.query), key = there(in.key), value = there(in.value), dy = there(seed);
    y = filled_there(seed.shape());
    log_sum = Tensor::empty({in.B(), in.H(), in.T()}, DType::f32, Device::cuda());
    dquery = filled_there(in.query.shape()), dkey = filled_there(in.key.shape());
    dvalue = filled_there(in.value.shape());
    const AttentionBy plain("plain");
    kernels::attention_forward(kernels::Cuda{0}, plan.shape, operands(), y.address<BFloat16>(),
                               log_sum.address<float>());
  }
  kernels::AttentionOperands<BFloat16> operands() const {
    const auto at = [](const Tensor& x) { return x.defined() ? x.address<float>() : nullptr; };
    return {query.address<BFloat16>(),
            key.address<BFloat16>(),
            value.address<BFloat16>(),
            nullptr,
            at(plan.bias()),
            at(plan.options.relative_bias),
            at(plan.options.score_parameter),
            at(plan.options.sinks)};
  }
  /// Whether tensor cores took it.
  bool backward(bool add = false) const {
    return backward({{dquery.address<BFloat16>(), add},
                     {dkey.address<BFloat16>(), add},
                     {dvalue.address<BFloat16>(), add}});
  }
  bool backward(const kernels::AttentionGradients<BFloat16>& to) const {
    return kernels::tensor_core_attention_backward(kernels::Cuda{0}, plan.shape, operands(),
                                                   y.address<BFloat16>(), log_sum.address<float>(),
                                                   dy.address<BFloat16>(), to);
  }
  std::vector<Tensor> gradients() const { return {readable(dquery), readable(dkey), readable(dvalue)}; }
};

std::vector<Tensor> gradients_of(const AttentionInputs& in, const AttentionOptions& options,
                                 const Tensor& seed) {
  const KernelCase kernels(in, options, seed);
  REQUIRE(kernels.backward());
  return kernels.gradients();
}

Tensor mma_seed(const AttentionInputs& in, Generator& random) {
  return as_type(random_normal({in.B(), in.T(), in.H(), in.value.size(3)}, random), DType::bf16);
}

constexpr double kRoundoff = 0x1p-8;  // of bf16
/// The forward pass is by the plain kernels, which round only their results.
constexpr RoundedToBf16 kRounded{0, kRoundoff, kRoundoff};

/// Weights by a sigmoid are left to the plain kernels.
bool is_supported(const AttentionCase& c) { return c.options.weighting == AttentionWeighting::softmax; }

/// The gradients by tensor cores are those of plain loops in f64; returns them.
std::vector<Tensor> check_mma_backward(const AttentionCase& c, Generator& random) {
  const std::string described = description(c);
  CAPTURE(described);
  const AttentionInputs in = as_type(c.in, DType::bf16);
  const Tensor seed = mma_seed(in, random);
  const std::vector<Tensor> got = gradients_of(in, c.options, seed);
  check_attention({{}, got}, in, c.options, seed, DType::bf16, kRounded);
  return got;
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_attention_mma_backward") {
  TEST_CASE("any widths, of keys and of values") {
    const Index widths[][2] = {{8, 16},   {32, 32},   {32, 40},   {64, 48},  {64, 64},
                               {80, 128}, {128, 128}, {128, 136}, {256, 16}, {256, 256}};
    for (const auto& width : widths) {
      Generator random(test_seed(static_cast<std::uint64_t>(1000 * width[0] + width[1])));
      for (int i = 0; i < kCasesOfWidth; ++i) {
        CAPTURE(i);
        AttentionCase c = random_case(random);
        while (!is_supported(c) || c.in.B() * c.in.T() * c.in.S() * c.in.H() > 5000) c = random_case(random);
        check_mma_backward(with_widths(c, width[0], width[1], random), random);
      }
    }
  }

  TEST_CASE("many tiles of keys and queries") {
    for (int i = 0; i < kLongCases; ++i) {
      CAPTURE(i);
      Generator random(test_seed(static_cast<std::uint64_t>(500 + i)));
      AttentionCase c = random_case(random, true);
      while (!is_supported(c) || c.in.H() > 3) c = random_case(random, true);
      const Index D = any_of({32, 64, 128}, random), E = any_of({32, 64, 72}, random);
      check_mma_backward(with_widths(c, D, E, random), random);
    }
  }

  TEST_CASE("tiles that every query sees whole, beside others, for each width") {
    for (const Index width : {32, 64, 128, 256}) {
      for (const char* kind : {"all", "causal", "packed"}) {
        CAPTURE(kind);
        Generator random(test_seed(static_cast<std::uint64_t>(width)));
        AttentionCase c{random_inputs(1, 193, 193, 2, 1, width, width, random), {}};
        c.options.causal = kind == std::string("causal");
        if (kind == std::string("packed")) c.options.query_starts = integers({0, 1, 191, 193}, {4});
        check_mma_backward(c, random);
        c.options.dropout = 0.25;
        check_mma_backward(c, random);
      }
    }
  }

  TEST_CASE("gradients are added where they are to be, and written where they are wanted") {
    Generator random(test_seed(5));
    for (const Index width : {24, 136}) {
      const AttentionInputs in = random_inputs(1, 33, 70, 2, 1, width, 16, random);
      const Tensor seed = mma_seed(in, random);
      const KernelCase written(in, {}, seed), added(in, {}, seed, 64.0);
      REQUIRE(written.backward());
      REQUIRE(added.backward(true));
      for (std::size_t i = 0; i < 3; ++i) {
        const Tensor once = written.gradients()[i], sum = added.gradients()[i];
        for (Index k = 0; k < once.elements(); ++k) {
          const double bound = 0.25 + kRoundoff * std::abs(once.at(k)) + 1e-5;  // 1/4: half a unit of 64
          REQUIRE_BELOW(std::abs(sum.at(k) - 64 - once.at(k)), bound);
        }
      }
      for (int wanted = 0; wanted < 3; ++wanted) {
        const KernelCase some(in, {}, seed);
        const auto write = [&](int which, const Tensor& x) {
          return kernels::Write<BFloat16>{which == wanted ? x.address<BFloat16>() : nullptr, false};
        };
        REQUIRE(some.backward({write(0, some.dquery), write(1, some.dkey), write(2, some.dvalue)}));
        for (int i = 0; i < 3; ++i) {
          const auto at = static_cast<std::size_t>(i);
          if (i == wanted) CHECK(absolute_error(some.gradients()[at], written.gradients()[at]) == 0);
          if (i != wanted) CHECK(std::isnan(some.gradients()[at].at(0)));
        }
      }
    }
  }

  TEST_CASE("a packed projection's gradient, through its strides") {
    const AttentionBy path("tensor_cores");
    Generator random(test_seed(6));
    const AttentionInputs in = as_type(random_inputs(2, 37, 37, 4, 2, 24, 16, random), DType::bf16);
    AttentionOptions options;
    options.causal = true;
    const Function packed = [&](const std::vector<Tensor>& x) {
      return packed_attention(x[0], heads_of(in), options);
    };
    const Tensor dy = mma_seed(in, random);
    const AttentionOracle exact = attention_oracle(in, options, dy);
    const AttentionOracle bound =
        attention_rounding(in, options, dy, exact, DType::f32, {}, {kRoundoff, kRoundoff, kRoundoff});
    for (const Index shift : {0, 8, 1}) {  // elements; the last takes the general kernels
      const std::vector<Tensor> got = with_gradients(
          packed, {on_gpu(pack(on_cpu(in).list()).to(DType::bf16), shift)}, on_gpu(dy.to(DType::bf16)));
      CHECK_BELOW(over_bound(readable(got[1]), pack(exact.gradients), pack(bound.gradients)), 1);
    }
  }

  TEST_CASE("the same bits, run after run and in any order of blocks and threads") {
    Generator random(test_seed(14));
    for (const Index width : {64, 128}) {
      const AttentionInputs in = random_inputs(1, 130, 70, 4, 2, width, 24, random);
      const Tensor seed = mma_seed(in, random);
      AttentionOptions options;
      options.causal = true;
      options.dropout = 0.2;
      const std::vector<Tensor> first = gradients_of(in, options, seed);
      for (const std::uint64_t order : {0, 7}) {
        emulator::options().order = order;
        const std::vector<Tensor> again = gradients_of(in, options, seed);
        emulator::options().order = 0;
        for (std::size_t i = 0; i < 3; ++i) CHECK(absolute_error(again[i], first[i]) == 0);
      }
    }
  }

  TEST_CASE("inputs that the kernels do not support are left to others, untouched") {
    Generator random(test_seed(15));
    const auto takes = [&](Index key_width, Index value_width, const auto& change) {
      const AttentionInputs in = random_inputs(1, 5, 6, 2, 1, key_width, value_width, random);
      KernelCase c(in, {}, mma_seed(in, random));
      change(c);
      const bool taken = c.backward();
      for (const Tensor& dx : c.gradients()) CHECK(std::isnan(dx.at(dx.elements() - 1)) == !taken);
      return taken;
    };
    const auto as_it_is = [](KernelCase&) {};
    CHECK(takes(16, 8, as_it_is));
    CHECK(!takes(16, 8, [](KernelCase& c) { c.plan.shape.weighting = AttentionWeighting::sigmoid; }));
    CHECK(!takes(12, 8, as_it_is));
    CHECK(!takes(8, 12, as_it_is));
    CHECK(takes(8, 256, as_it_is));
    CHECK(!takes(8, 264, as_it_is));
    CHECK(!takes(264, 8, as_it_is));
    Tensor KernelCase::*const all[] = {&KernelCase::query, &KernelCase::key,   &KernelCase::value,
                                       &KernelCase::y,     &KernelCase::dy,    &KernelCase::dquery,
                                       &KernelCase::dkey,  &KernelCase::dvalue};
    for (const auto which : all) {
      CHECK(takes(8, 8, [&](KernelCase& c) { c.*which = on_gpu(c.*which, 8); }));
      CHECK(!takes(8, 8, [&](KernelCase& c) { c.*which = on_gpu(c.*which, 4); }));
    }
    CHECK(kernels::has_tensor_cores(kernels::Cuda{0}, 48 * 1024));
    CHECK(!kernels::has_tensor_cores(kernels::Cuda{0}, 1024 * 1024));
  }

  TEST_CASE("no queries, no keys") {
    Generator random(test_seed(16));
    for (const Index queries : {0, 3}) {
      const AttentionInputs in = random_inputs(1, queries, queries == 0 ? 3 : 0, 1, 1, 8, 8, random);
      for (const Tensor& dx : gradients_of(in, {}, mma_seed(in, random)))
        for (Index i = 0; i < dx.elements(); ++i) CHECK(dx.at(i) == 0);
    }
  }
}
