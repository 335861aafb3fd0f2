#include <tapeformer/nn/attention/native_sparse.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/check_gradients.h>
#include <tapeformer/tests/reference/native_sparse.h>

#include <array>

using namespace tapeformer;

namespace {

struct SparseSizes {
  Index span, stride, block, top_k, window;
};

AttentionConfig sparse_config(const SparseSizes& sizes, Index groups = 2) {
  AttentionConfig config("nsa", 4);
  config.width = 6, config.groups = groups, config.key_width = 4, config.value_width = 5;
  config.rotary = true;
  const auto own = [&](const char* name, Index value) { config.own[name] = static_cast<double>(value); };
  own("nsa_span", sizes.span), own("nsa_stride", sizes.stride), own("nsa_block", sizes.block);
  own("nsa_top_k", sizes.top_k), own("nsa_window", sizes.window);
  return config;
}

constexpr SparseSizes kSmall{4, 2, 4, 3, 3};

}  // namespace

TEST_CASE("outputs are those of the formula, with plain loops for the choice of blocks") {
  for (const SparseSizes& sizes :
       {kSmall, SparseSizes{2, 2, 4, 4, 5}, SparseSizes{6, 2, 8, 2, 1}, SparseSizes{1, 1, 1, 5, 2},
        SparseSizes{3, 1, 3, 1, 4}, SparseSizes{4, 2, 4, 9, 40}}) {
    for (const Index length : {1, 3, 7, 31, 33}) {
      for (const bool rotary : {true, false}) {
        for (const Index groups : {1, 2, 4}) {
          AttentionConfig config = sparse_config(sizes, groups);
          config.rotary = rotary, config.bias = rotary;
          CAPTURE(sizes.span);
          CAPTURE(length);
          CAPTURE(rotary);
          CAPTURE(groups);
          NativeSparseAttention layer = random_module<NativeSparseAttention>(config);
          const Tensor x = random_values({2, length, 6}, 3);
          const NativeSparseFormula expected = native_sparse_formula(config, parameters_of(layer), x);
          REQUIRE(expected.gap > 1e-9);
          CHECK_BELOW(relative_error(layer(x, x, causal_context()), expected.y), 1e-12);
        }
      }
    }
  }
}

TEST_CASE("more queries than one piece of the choice holds, at once and after cached tokens") {
  const AttentionConfig config = sparse_config({1, 1, 1, 5, 2});
  NativeSparseAttention layer = random_module<NativeSparseAttention>(config);
  const Tensor x = random_values({2, 360, 6}, 3);
  const NativeSparseFormula expected = native_sparse_formula(config, parameters_of(layer), x);
  REQUIRE(expected.gap > 1e-9);
  CHECK_BELOW(relative_error(layer(x, x, causal_context()), expected.y), 1e-12);
  const auto cache = make_cache({CacheKind::contiguous, 0, 2}, layer.cache_widths());
  const AttentionContext context = causal_context(cache.get());
  for (const auto& [from, count] : {std::array<Index, 2>{0, 50}, {50, 310}}) {
    const Tensor part = slice(x, 1, from, count);
    CHECK_BELOW(relative_error(layer(part, part, context), slice(expected.y, 1, from, count)), 1e-12);
  }
}

TEST_CASE("the gradients of a layer pass the gradient check, with choices that are not close") {
  for (const Index groups : {1, 2}) {
    const AttentionConfig config = sparse_config({2, 1, 2, 3, 2}, groups);
    NativeSparseAttention layer = random_module<NativeSparseAttention>(config);
    Tensor x;
    std::uint64_t seed = 3;
    do x = random_values({1, 9, 6}, seed++);  // a step of a difference changes importance by some thousandths
    while (native_sparse_formula(config, parameters_of(layer), x).gap < 0.02);
    check_gradients("native_sparse",
                    gradcheck_module(layer, {{"x", x}}, [&] { return layer(x, x, causal_context()); }));
  }
}

TEST_CASE("weights are of earlier tokens, and sum to the sum of the gates where something is compressed") {
  AttentionConfig config = sparse_config({4, 2, 4, 2, 3});
  config.value_width = 4;
  NativeSparseAttention layer = random_module<NativeSparseAttention>(config);
  set_parameter(layer, "gate.weight", Tensor::full({12, 6}, 0, DType::f64));
  set_parameter(layer, "gate.bias", Tensor::full({12}, 0, DType::f64));
  const Tensor x = random_values({2, 15, 6}, 3);
  Tensor weights;
  AttentionContext context = causal_context();
  context.weights = &weights;
  const Tensor y = layer(x, x, context);
  CHECK_BELOW(relative_error(y, layer(x, x, causal_context())), 1e-12);
  REQUIRE(weights.shape() == Shape{2, 4, 15, 15});
  for (Index row = 0; row < 2 * 4 * 15; ++row) {
    double total = 0, later = 0;
    for (Index s = 0; s < 15; ++s) (s <= row % 15 ? total : later) += weights.at(15 * row + s);
    CHECK(later == 0);
    CHECK_BELOW(deviation(total, row % 15 < 3 ? 1.0 : 1.5), 1e-12);
  }
}

TEST_CASE("sizes that do not fit, other memories, masks and dropout are refused") {
  const auto refusal = [](const SparseSizes& sizes,
                          const std::function<void(AttentionConfig&)>& change = {}) {
    AttentionConfig config = sparse_config(sizes);
    if (change) change(config);
    return message_of<Error>([&] { config.check(); });
  };
  const std::string sizes =
      "[attention] nsa_stride must divide nsa_span and nsa_block, and nsa_block be at least nsa_span; got "
      "attention=nsa, nsa_span=";
  const std::string remedy = "; try nsa_span=32, nsa_stride=16, nsa_block=64";
  CHECK(refusal(kSmall) == "nothing was thrown");
  CHECK(refusal({4, 3, 6, 2, 2}) == sizes + "4, nsa_stride=3, nsa_block=6" + remedy);
  CHECK(refusal({4, 2, 5, 2, 2}) == sizes + "4, nsa_stride=2, nsa_block=5" + remedy);
  CHECK(refusal({4, 2, 2, 2, 2}) == sizes + "4, nsa_stride=2, nsa_block=2" + remedy);
  CHECK(refusal({0, 2, 4, 2, 2}).find("nsa_span must be ") != std::string::npos);
  CHECK(refusal(kSmall, [](auto& c) { c.cross = true; }) ==
        "[attention] native sparse attention is causal, and attends to no other memory; got attention=nsa, "
        "cross=true; try attention=mha");
  CHECK(refusal(kSmall, [](auto& c) { c.dropout = 0.1; }) ==
        "[attention] native sparse attention has no dropout of weights; got attention=nsa, dropout=0.1; try "
        "attention_dropout=0");
  NativeSparseAttention layer = random_module<NativeSparseAttention>(sparse_config(kSmall));
  const Tensor x = random_values({2, 5, 6}, 3), memory = random_values({2, 5, 6}, 4);
  const auto refused = [&](const Tensor& other, const std::function<void(AttentionContext&)>& change) {
    AttentionContext context = causal_context();
    change(context);
    return message_of<Error>([&] { layer(x, other, context); });
  };
  CHECK(refused(memory, [](auto&) {}) ==
        "[native_sparse] query and memory must be the same tensor; got query=f64[2,5,6], memory=f64[2,5,6]; "
        "try attention=mha");
  CHECK(refused(x,
                [](auto& c) {
                  c.key_mask = real_tokens({3, 5}, 5);
                }) ==
        "[native_sparse] blocks are counted from the start of a row, so the only mask is the causal one; got "
        "key_mask=bool[2,5]; try padding behind the last real token, which none of them sees");
  CHECK(refused(x, [](auto& c) { c.causal = false; }) ==
        "[native_sparse] a token knows only those before it; got causal=false; try causal=true");
}
