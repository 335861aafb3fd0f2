#include <tapeformer/tests/autograd/kernels/attention_path_case.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

using namespace tapeformer;

const int kLongCases = random_cases(6);
const AttentionPath kPaths[] = {gpu_path("tensor_cores", DType::bf16), gpu_path("tf32", DType::f32)};
const std::vector<Index> kWidths =
    is_sanitized() ? std::vector<Index>{64} : std::vector<Index>{32, 64, 128, 256};

namespace {

/// Every third row of a mask is covered.
Tensor thirds_covered(double by, Index queries, Index keys) {
  const Tensor mask = Tensor::zeros({queries, keys}, DType::f64, Device::cpu());
  for (Index row = 0; row < queries; row += 3) std::fill_n(mask.data<double>() + row * keys, keys, by);
  return mask;
}

/// Checks c on all of kPaths that support its widths.
void check_paths(const AttentionCase& c, Generator& random) {
  const Index width = std::max(c.in.query.size(3), c.in.value.size(3));
  for (const AttentionPath& path : kPaths)
    if (path.type == DType::bf16 || width <= 128) check_path(path, c, random);
}

}  // namespace

TEST_CASE("any widths, of keys and of values, with masks and without") {
  const Index widths[][2] = {{8, 16},  {32, 32},   {32, 40},   {64, 48},  {80, 128},
                             {64, 64}, {128, 128}, {128, 136}, {256, 16}, {256, 256}};
  for (const auto& width : widths) {
    if (!is_tried(&width - widths)) continue;
    CAPTURE(width[0]);
    Generator random(test_seed(static_cast<std::uint64_t>(1000 * width[0] + width[1])));
    AttentionCase c = simple_case(1, 70, 131, 2, 1, width[0], width[1], random);
    c.options.causal = true;
    check_paths(c, random);
    c.options.mask = host_normal({70, 131}, random);
    c.options.dropout = 0.25;
    check_paths(c, random);
  }
}

TEST_CASE("many tiles of queries and keys, any options") {
  for (int i = 0; i < kLongCases; ++i) {
    CAPTURE(i);
    Generator random(test_seed(static_cast<std::uint64_t>(500 + i)));
    AttentionCase c = case_of(random_problem(random, true));
    while (c.in.H() > 3) c = case_of(random_problem(random, true));
    const Index D = any_of({8, 32, 64, 128}, random), E = any_of({16, 32, 64, 72}, random);
    check_paths(with_widths(c, D, E, random), random);
  }
}

TEST_CASE("tiles that every query sees whole, next to others, for each width") {
  for (const Index width : kWidths) {
    for (const std::string kind : {"all", "causal", "packed"}) {
      CAPTURE(kind);
      Generator random(test_seed(static_cast<std::uint64_t>(width)));
      AttentionCase c = simple_case(1, 193, 193, 1, 1, width, width, random);
      c.options.causal = kind == "causal";
      if (kind == "packed") c.options.query_starts = integers({0, 1, 191, 193}, {4});
      check_paths(c, random);
      if (kind != "packed") continue;
      c.options.dropout = 0.25;
      check_paths(c, random);
    }
  }
}

TEST_CASE("changed scores, of whole tiles and next to pairs and rows that are hidden, for each width") {
  for (const Index width : {32, 64, 128, 256}) {
    if (is_sanitized() && width != 64 && width != 256) continue;
    for (const std::string change : {"softcap", "sigmoid", "all"}) {
      CAPTURE(width);
      CAPTURE(change);
      Generator random(test_seed(static_cast<std::uint64_t>(width)));
      AttentionCase c = simple_case(1, 70, 133, 2, 1, width, 40, random);
      AttentionOptions& options = c.options;
      if (change == "all") options = modified_options(70, 133, random);
      if (change == "softcap")
        options.score_function = ScoreFunction::softcap, options.score_parameter = values({0.8, 1.5});
      if (change == "sigmoid") options.weighting = AttentionWeighting::sigmoid;
      if (change == "all" && width == 64)
        options.weighting = AttentionWeighting::sigmoid, options.sinks = Tensor();
      check_paths(c, random);
      options.causal = true, options.window_before = 70;
      options.query_mask = random_mask({1, 70}, random), options.key_mask = random_mask({1, 133}, random);
      options.dropout = 0.25;
      check_paths(c, random);
    }
  }
}

TEST_CASE("relative biases of more distances than a block has, for each width") {
  for (const Index width : kWidths) {
    CAPTURE(width);
    Generator random(test_seed(static_cast<std::uint64_t>(width)));
    const Index of_heads = width % 3;  // 2, 1, 2, 1
    AttentionCase far = simple_case(width == 64 ? 2 : 1, 20, 530, 2, 1, width, 16, random);
    far.options.relative_bias = random_normal({of_heads, 1059}, random);
    far.options.window_before = 300, far.options.dropout = width == 32 ? 0.25 : 0;
    check_paths(far, random);
    AttentionCase packed = simple_case(1, 290, 290, 2, 1, width, 16, random);  // positions begin again
    packed.options.relative_bias = random_normal({of_heads, 579}, random);
    packed.options.query_starts = integers({0, 131, 133, 290}, {4});
    if (width == 256) packed.options.query_mask = random_mask({1, 290}, random);
    check_paths(packed, random);
  }
}

TEST_CASE("large scores neither overflow nor vanish") {
  Generator random(test_seed(23));
  AttentionCase c = simple_case(1, 20, 70, 1, 1, 16, 16, random);
  for (const double scale : {30.0, -30.0}) {
    c.options.scale = scale;
    check_paths(c, random);
    AttentionCase changed = c;
    changed.options.weighting = AttentionWeighting::sigmoid;
    check_paths(changed, random);
    changed.options.weighting = AttentionWeighting::softmax;
    changed.options.score_function = ScoreFunction::softcap, changed.options.score_parameter = values({50});
    check_paths(changed, random);
  }
}

TEST_CASE("scales of either sign that are 0 in f32 give the same output") {
  Generator random(test_seed(31));
  const AttentionInputs in = random_inputs(1, 20, 70, 1, 1, 16, 16, random);
  AttentionOptions above, below;
  above.scale = 1e-60, below.scale = -1e-60;
  CHECK(same_values(attention_by("tensor_cores", in, above), attention_by("tensor_cores", in, below)));
}

TEST_CASE("heads side by side in one projection are read, and get their gradients, where they lie") {
  const ByTf32 tf32;
  for (const std::string kind : {"tensor_cores", "tf32", "hopper"}) {
    const DType type = kind == "tf32" ? DType::f32 : DType::bf16;
    const Roundings rounded = gpu_path(kind, type).rounded;
    const AttentionBy path(kind == "hopper" ? "hopper" : "tensor_cores");
    Generator random(test_seed(6));
    const AttentionInputs in = as_type(random_inputs(2, 70, 70, 4, 2, 48, 40, random), type);
    AttentionOptions options;
    options.causal = true;
    const Function packed = [&](const std::vector<Tensor>& x) {
      return packed_attention(x[0], heads_of(in), options);
    };
    const Tensor dy = as_type(random_normal({2, 70, 4, 40}, random), type);
    const AttentionOracle exact = attention_oracle(in, options, dy),
                          bound = attention_rounding(in, options, dy, exact, DType::f32, {}, rounded);
    for (const Index shift : {0, 8, 1}) {  // elements; the last takes the general kernels
      const std::vector<Tensor> got =
          with_gradients(packed, {on_gpu(pack(on_cpu(in).list()).to(type), shift)}, on_gpu(dy.to(type)));
      CHECK_BELOW(over_bound(readable(got[0]), exact.y, bound.y), 1);
      CHECK_BELOW(over_bound(readable(got[1]), pack(exact.gradients), pack(bound.gradients)), 1);
    }
  }
}

TEST_CASE("gradients are added or written, as requested") {
  Generator random(test_seed(5));
  const auto hopper = [](auto&&... in) { return kernels::hopper_attention_backward(in...); };
  struct Kind {
    std::function<decltype(kernels::tensor_core_attention_backward<BFloat16>)> run;
    Index queries, width;
  };
  for (const auto& [run, queries, width] : {Kind{kernels::tensor_core_attention_backward<BFloat16>, 33, 24},
                                            {kernels::tensor_core_attention_backward<BFloat16>, 33, 136},
                                            {hopper, 131, 64},
                                            {hopper, 70, 128}}) {
    CAPTURE(width);
    const AttentionCase c = simple_case(1, queries, 70, 2, 1, width, 16, random);
    const KernelCase written(c), added(c, 64.0);
    written.plain_forward(), added.plain_forward();
    REQUIRE(written.backward(run, false));
    REQUIRE(added.backward(run, true));
    for (std::size_t i = 0; i < 3; ++i) {
      const Tensor once = written.gradients()[i], sum = added.gradients()[i];
      for (Index k = 0; k < once.elements(); ++k) {
        const double bound = 0.25 + 0x1p-8 * std::abs(once.at(k)) + 1e-5;  // 1/4: half a unit of 64
        REQUIRE_BELOW(std::abs(sum.at(k) - 64 - once.at(k)), bound);
      }
    }
    for (std::size_t wanted = 0; wanted < 3; ++wanted) {
      const KernelCase some(c);
      some.plain_forward();
      REQUIRE(some.backward(run, false, {wanted == 0, wanted == 1, wanted == 2}));
      for (std::size_t i = 0; i < 3; ++i) {
        if (i == wanted) CHECK(absolute_error(some.gradients()[i], written.gradients()[i]) == 0);
        if (i != wanted) CHECK(std::isnan(some.gradients()[i].at(0)));
      }
    }
  }
}

TEST_CASE("inputs that the backward kernels do not support are left to others, untouched") {
  Generator random(test_seed(15));
  const auto takes = [&](Index key_width, Index value_width, const auto& change) {
    KernelCase c(simple_case(1, 5, 6, 2, 1, key_width, value_width, random));
    c.plain_forward();
    change(c);
    const bool taken = c.backward(kernels::tensor_core_attention_backward<BFloat16>, false);
    for (const Tensor& dx : c.gradients()) CHECK(std::isnan(dx.at(dx.elements() - 1)) == !taken);
    return taken;
  };
  const auto as_it_is = [](KernelCase&) {};
  CHECK(takes(16, 8, as_it_is));
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
  const auto takes_relative = [&](Index width) {
    AttentionCase made = simple_case(1, 5, 6, 2, 1, width, 8, random);
    made.options.relative_bias = random_normal({2, 11}, random);
    const KernelCase c(made);
    c.plain_forward();
    const Tensor to = Tensor::zeros({2, 11}, DType::f32, Device::cuda());
    return kernels::tensor_core_relative_gradient(kernels::Cuda{0}, c.plan.shape, c.operands(),
                                                  c.y.address<BFloat16>(), c.log_sum.address<float>(),
                                                  c.dy.address<BFloat16>(), {to.address<float>(), false});
  };
  CHECK(takes_relative(16));
  CHECK(!takes_relative(12));
}

TEST_CASE("aligned rows go through tensor cores, f32 in TF32 alone, and others through the plain kernels") {
  const Index room = kernels::shared_room({});  // of a block's memory
  struct Rows {
    DType type;
    Index key_width, value_width, shift;
    bool fit;
  };
  for (const auto& [type, D, E, shift, fit] : {Rows{DType::f32, 64, 64, 0, true},
                                               {DType::f32, 128, 4, 4, room >= 102'000},
                                               {DType::f32, 64, 64, 2, false},
                                               {DType::f32, 62, 64, 0, false},
                                               {DType::f32, 64, 132, 0, false},
                                               {DType::bf16, 64, 64, 0, true},
                                               {DType::bf16, 256, 8, 0, room >= 136'000},
                                               {DType::bf16, 64, 64, 8, true},
                                               {DType::bf16, 64, 64, 1, false},
                                               {DType::bf16, 64, 64, 4, false},
                                               {DType::bf16, 64, 60, 0, false},
                                               {DType::bf16, 60, 64, 0, false},
                                               {DType::bf16, 264, 64, 0, false},
                                               {DType::bf16, 64, 264, 0, false}}) {
    INFO(name_of(type), " ", D, " ", E, " ", shift);
    Generator random(test_seed(25));
    const AttentionInputs in = random_inputs(1, 40, 70, 1, 1, D, E, random);
    const auto differ = [&, &type = type, &shift = shift](AttentionWeighting weighting) {
      AttentionOptions options;
      options.weighting = weighting;
      return !same_values(attention_by("tensor_cores", in, options, type, shift),
                          attention_by("plain", in, options, type, shift));
    };
    if (type == DType::f32) CHECK_FALSE(differ(AttentionWeighting::softmax));
    const ByTf32 tf32;
    CHECK(differ(AttentionWeighting::softmax) == fit);
    CHECK(differ(AttentionWeighting::sigmoid) == fit);
  }
}

// The logarithm of a row's sum is rounded away.
TEST_CASE("rows under a large finite mask have the gradients of the plain formula") {
  if (is_sanitized()) return;
  const AttentionBy path("tensor_cores");
  const ByTf32 tf32;
  const Index keys = 150;
  constexpr double kLowest = std::numeric_limits<float>::lowest(), kLowestBf16 = -0x1.FEp127;
  const Index shapes[][2] = {{5, 16}, {40, 64}, {20, 136}};  // queries and width; few queries are split
  for (const auto& shape : shapes) {
    for (const double by : {1e9, -1e6, -1e9, kLowestBf16, kLowest}) {
      for (const bool modifies : {false, true}) {
        CAPTURE(shape[0]);
        CAPTURE(by);
        CAPTURE(modifies);
        Generator random(test_seed(static_cast<std::uint64_t>(shape[0])));
        const AttentionInputs in =
            as_type(random_inputs(1, shape[0], keys, 2, 1, shape[1], 16, random), DType::bf16);
        AttentionOptions options;
        options.mask = thirds_covered(by, shape[0], keys);
        if (modifies) options.score_function = ScoreFunction::softcap, options.score_parameter = values({2});
        const Tensor seed = as_type(host_normal({1, shape[0], 2, 16}, random), DType::bf16);
        // Scores in f32 are rounded after adding the mask, as in the kernels.
        const auto by_formula = [&](const std::vector<Tensor>& x) {
          AttentionOptions single = moved(options, Device::cpu());
          for (Tensor* modifier : modifiers_of(single)) *modifier = modifier->to(DType::f32);
          return composed_attention(x[0], x[1], x[2], single);
        };
        std::vector<Tensor> inputs = in.list();
        for (Tensor& x : inputs) x = x.to(Device::cpu()).to(DType::f32);
        const OpResult expected = run_op(by_formula, inputs, seed.to(DType::f32));
        const auto by_kernels = [&](const std::vector<Tensor>& x) {
          return scaled_dot_product_attention(x[0], x[1], x[2], options_on_gpu(options));
        };
        for (const DType type : {DType::bf16, DType::f32}) {  // the numbers of one are among those of TF32
          CAPTURE(name_of(type));
          const OpResult got = run_op(by_kernels, inputs_on_gpu(in, type), on_gpu(seed.to(type)));
          CHECK_BELOW(relative_error(readable(got.y), expected.y), 0x1p-6);
          for (std::size_t i = 0; i < 3; ++i) {
            CAPTURE(i);
            CHECK_BELOW(relative_error(readable(got.gradients[i]), expected.gradients[i]), 0x1p-6);
          }
        }
      }
    }
  }
}

// As in the kernels for the CPU: 20 and 24 next to a mask whose neighbours are 64 away.
TEST_CASE("a relative bias is added to the scores before a mask, however large that is") {
  if (is_sanitized()) return;
  const AttentionBy path("tensor_cores");
  const ByTf32 tf32;
  constexpr Index kQueries = 40, kKeys = 150, kWidth = 16;
  Generator random(test_seed(41));
  const Tensor query = Tensor::zeros({1, kQueries, 1, kWidth}, DType::f32, Device::cpu()),
               key = Tensor::zeros({1, kKeys, 1, kWidth}, DType::f32, Device::cpu()),
               value = as_type(host_normal({1, kKeys, 1, kWidth}, random), DType::bf16);
  for (Index t = 0; t < kQueries; ++t) query.data<float>()[t * kWidth] = 1;
  for (Index s = 0; s < kKeys; s += 3) key.data<float>()[s * kWidth] = 24;
  AttentionOptions options;
  options.scale = 1;
  options.relative_bias = Tensor::full({1, 2 * kKeys - 1}, 20, DType::f32, Device::cpu());
  options.mask = Tensor::full({1, kKeys}, -1e9, DType::f32, Device::cpu());
  AttentionOptions without;
  without.scale = 64;  // the same weights: all on the keys that are not zero
  const Tensor expected = composed_attention(query, key, value.to(DType::f32), without);
  for (const DType type : {DType::bf16, DType::f32}) {
    CAPTURE(name_of(type));
    const Tensor y = scaled_dot_product_attention(on_gpu(query.to(type)), on_gpu(key.to(type)),
                                                  on_gpu(value.to(type)), options_on_gpu(options));
    CHECK_BELOW(relative_error(readable(y), expected), 0x1p-6);
  }
}
