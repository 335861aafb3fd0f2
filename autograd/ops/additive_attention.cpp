#include <tapeformer/autograd/ops/additive_attention.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>

namespace tapeformer {
namespace {

void check(const char* op, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& weight,
           const AttentionOptions& options) {
  check_attention(op, query, key, value, options);
  require(weight.shape() == Shape{query.size(2), query.size(3)}, op, "weight must be [H, D]",
          {{"weight", weight}, {"query", query}}, "one row for every head of the query");
  require(options.scale == 0, op, "additive scores have no scale", {{"scale", options.scale}},
          "0, or a larger weight");
  require(options.block_size == 0, op, "additive attention has no blocks of keys",
          {{"block_size", options.block_size}}, "0 for all keys");
}

/// weight_h . tanh(query_t + key_s)
Tensor scores(const Tensor& query, const Tensor& key, const Tensor& weight) {
  const Index B = query.size(0), T = query.size(1), H = query.size(2), D = query.size(3), S = key.size(1);
  const Tensor query_bht1d = reshape(permute(query, {0, 2, 1, 3}), Shape{B, H, T, 1, D});
  const Tensor key_bh1sd = reshape(permute(key, {0, 2, 1, 3}), Shape{B, H, 1, S, D});
  const Tensor weight_h1d1 = reshape(weight, Shape{H, 1, D, 1});
  return reshape(matmul(tanh(query_bht1d + key_bh1sd), weight_h1d1), Shape{B, H, T, S});
}

}  // namespace

Tensor composed_additive_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const Tensor& weight, const AttentionOptions& options) {
  constexpr const char* kOp = "composed_additive_attention";
  check(kOp, query, key, value, weight, options);
  return composed_attention_of(
      query, key, value, options,
      [&](const Tensor& query_bthd, const Tensor& key_bshd) { return scores(query_bthd, key_bshd, weight); });
}

Tensor additive_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& weight,
                          const AttentionOptions& options) {
  constexpr const char* kOp = "additive_attention";
  check(kOp, query, key, value, weight, options);
  if (needs_composed(options)) return composed_additive_attention(query, key, value, weight, options);
  const AttentionPlan plan = plan_attention(query, key, value, options);
  return tiled_attention(kOp, plan, {query, key, value, weight}, [](const auto& in, const auto& planned) {
    return composed_additive_attention(in.query, in.key, in.value, in.weight, planned.options);
  });
}

}  // namespace tapeformer
