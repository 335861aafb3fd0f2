#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/block_attention.h>
#include <tapeformer/autograd/kernels/embedding.h>
#include <tapeformer/autograd/ops/attention/block_attention.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/profile.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace tapeformer {
namespace {

constexpr const char* kOp = "block_attention";

/// [B, S, G, D] -> [B, G, S, D] and back.
Tensor by_group(const Tensor& x) { return permute(x, {0, 2, 1, 3}); }

std::int32_t* ids_at(const Tensor& x) { return x.address<std::int32_t>(); }

/// The kernels' arguments, and the tensors that their pointers point into.
struct BlockPlan {
  kernels::BlockSizes sizes;
  kernels::AttentionShape shape;          // of the parts
  Tensor rows, places, starts, from, to;  // SortedParts
  Tensor units;                           // i32 [N, K]
  Tensor key_mask;                        // bool [B G S]

  /// Rows of x [N, ...] for every part.
  Tensor of_parts(const Tensor& x, Index width) const {
    const Tensor parts = Tensor::empty({sizes.parts(), width}, x.dtype(), x.device());
    dispatch(kOp, operands(x, parts), [&](auto on, auto* px, auto* copies) {
      kernels::embedding_forward(on, sizes.parts(), sizes.rows(), width, ids_at(rows), px, copies);
    });
    return parts;
  }
  void count_products(Index of_key_width, Index of_value_width) const {
    if (!is_profiled()) return;
    const Index pairs = count_pairs({from, to}, sizes.parts(), shape.keys);
    count_flops(kOp, 2 * pairs * (of_key_width * shape.key_width + of_value_width * shape.value_width));
  }
};

void check_blocks(const Tensor& query, const Tensor& key, const AttentionOptions& options) {
  const std::pair<bool, const char*> excluded[] = {
      {options.mask.defined(), "mask"},
      {options.query_starts.defined(), "query_starts"},
      {options.score_function != ScoreFunction::none, "score_function"},
      {options.relative_bias.defined(), "relative_bias"},
      {options.sinks.defined(), "sinks"},
      {options.weighting != AttentionWeighting::softmax, "weighting"},
      {options.dropout > 0, "dropout"},
  };
  for (const auto& [is_given, name] : excluded)
    if (is_given)
      throw Error(format(
          "[{}] attention to blocks has a plain softmax, without masks of pairs or packed sequences; got {}, "
          "block_size={}; try block_size=0, or no {}",
          kOp, name, options.block_size, name));
  require(options.block_size > 0, kOp, "block_size must not be negative",
          {{"query", query}, {"block_size", options.block_size}}, "0 to attend to all keys");
  require(options.block_top_k > 0, kOp, "block_top_k counts the query's own block",
          {{"query", query}, {"block_size", options.block_size}, {"block_top_k", options.block_top_k}},
          "a block_top_k of 1 or more");
  const Tensor& scores = options.block_scores;
  if (!scores.defined()) return;
  const Shape fitting{query.size(0), query.size(1), key.size(2), key.size(1) / options.block_size};
  require<DTypeError>(scores.dtype() == wide(query.dtype()), kOp, "block_scores must have the wide type",
                      {{"block_scores", scores}, {"query", query}}, "f64 with an f64 query, else f32");
  require(scores.shape() == fitting, kOp, "block_scores must be [B, T, G, S / block_size]",
          {{"block_scores", scores}, {"query", query}, {"key", key}, {"block_size", options.block_size}},
          "a score of each whole block for each group of heads");
  require_same_device(kOp, "block_scores", scores, query);
}

/// The mean key of each whole block: [B, G, S / block, D], in the wide type.
Tensor block_means(const Tensor& key_bgsd, const AttentionOptions& options, Index block) {
  const Index B = key_bgsd.size(0), G = key_bgsd.size(1), S = key_bgsd.size(2), D = key_bgsd.size(3),
              blocks = S / block;
  Tensor keys = cast(key_bgsd, wide(key_bgsd.dtype()));
  if (options.key_mask.defined())
    keys = where(options.key_mask.alias({B, 1, S, 1}), keys, Tensor::scalar_like(keys, 0));
  return mean(reshape(slice(keys, 2, 0, blocks * block), {B, G, blocks, block, D}), {3});
}

BlockPlan plan_blocks(const Tensor& query, const Tensor& key_bgsd, const Tensor& value_bgse,
                      const AttentionOptions& options) {
  const NoGradGuard choice_has_no_gradient;
  BlockPlan plan;
  kernels::BlockSizes& n = plan.sizes;
  n.batch = query.size(0), n.queries = query.size(1), n.heads = query.size(2), n.key_width = query.size(3);
  n.groups = key_bgsd.size(1), n.keys = key_bgsd.size(2);
  n.block = options.block_size;
  n.top_k = std::min(options.block_top_k, std::max<Index>(1, n.blocks()));  // more would be empty
  const Device device = query.device();
  const Tensor positions = query_positions(options, n.batch, n.queries, n.keys, device);
  const VisibleKeys visible = visible_keys(options, n.batch, n.queries, n.keys, device);
  n.positions = ids_at(positions);
  n.from = address_or_null<std::int32_t>(visible.from), n.to = address_or_null<std::int32_t>(visible.to);
  constexpr Index kMost = std::numeric_limits<std::int32_t>::max();
  const Index all_keys = n.batch * n.groups * n.keys;
  require(n.parts() < kMost && all_keys < kMost, kOp, "parts and keys must be counted in 32 bits",
          {{"query", query}, {"block_top_k", n.top_k}}, "fewer sequences in a batch");

  const auto integers = [&](const Shape& shape) { return Tensor::empty(shape, DType::i32, device); };
  const Index parts = n.parts();
  plan.units = integers({n.rows(), n.top_k});
  const Tensor means = options.block_scores.defined() ? Tensor() : block_means(key_bgsd, options, n.block);
  Tensor scores = options.block_scores;
  if (scores.defined())
    n.choosers = n.heads / n.groups;
  else
    scores = Tensor::empty({n.rows(), n.whole_blocks()}, means.dtype(), device);
  dispatch(kOp, operands(query, wide(means), wide(scores)), [&](auto on, auto* pq, auto* pm, auto* to) {
    kernels::choose_blocks(on, n, pq, pm, to, ids_at(plan.units));
  });
  plan.rows = integers({parts}), plan.places = integers({n.rows(), n.top_k}), plan.from = integers({parts}),
  plan.to = integers({parts}), plan.starts = integers({n.units() + 1});
  dispatch_on(kOp, device, [&](auto on) {
    kernels::sort_by_block(
        on, n, ids_at(plan.units),
        {ids_at(plan.rows), ids_at(plan.places), ids_at(plan.starts), ids_at(plan.from), ids_at(plan.to)});
  });
  n.from = n.to = n.positions = nullptr;  // which the parts have taken in

  AttentionOptions scale;
  scale.scale = options.scale;
  plan.shape =
      plan_attention({1, parts, all_keys, 1, 1, n.key_width, value_bgse.size(3)}, scale, device).shape;
  plan.shape.is_part = true;
  plan.shape.key_from = ids_at(plan.from), plan.shape.key_to = ids_at(plan.to);
  if (options.key_mask.defined() && n.groups > 1) {
    const Tensor by_row = options.key_mask.alias({n.batch, 1, n.keys}).to(DType::f32);
    plan.key_mask = broadcast_to(by_row, {n.batch, n.groups, n.keys}).to(DType::boolean);
  } else {
    plan.key_mask = options.key_mask;
  }
  plan.shape.key_mask = address_or_null<bool>(plan.key_mask);
  return plan;
}

/// The pairs of the choice, as a mask of the composed path.
Tensor composed_block_attention(const Tensor& query, const Tensor& key_bgsd, const Tensor& value_bgse,
                                const AttentionOptions& options, const BlockPlan& plan) {
  const kernels::BlockSizes& n = plan.sizes;
  AttentionOptions masked = options;
  masked.block_size = 0;
  masked.mask = Tensor::empty({n.batch, n.heads, n.queries, n.keys}, DType::boolean, query.device());
  dispatch_on(kOp, query.device(), [&](auto on) {
    kernels::write_chosen_pairs(on, n, ids_at(plan.units), masked.mask.address<bool>());
  });
  return composed_attention(query, by_group(key_bgsd), by_group(value_bgse), masked);
}

}  // namespace

Tensor block_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                       const AttentionOptions& options) {
  check_attention(kOp, query, key, value, options);
  check_blocks(query, key, options);
  const Tensor key_bgsd = by_group(key), value_bgse = by_group(value);
  const BlockPlan plan = plan_blocks(query, key_bgsd, value_bgse, options);
  if (needs_composed(options)) return composed_block_attention(query, key_bgsd, value_bgse, options, plan);

  const kernels::BlockSizes& n = plan.sizes;
  const Index D = n.key_width, E = value.size(3);
  const Tensor y = Tensor::empty({n.batch, n.queries, n.heads, E}, query.dtype(), query.device());
  const Tensor log_sum = Tensor::empty({n.rows(), 1}, wide(query.dtype()), query.device());
  {
    const Tensor queries = plan.of_parts(query, D);
    const Tensor part_y = Tensor::empty({n.parts(), E}, query.dtype(), query.device());
    const Tensor part_sums = Tensor::empty({n.parts()}, log_sum.dtype(), query.device());
    plan.count_products(1, 1);
    dispatch(
        kOp, operands(queries, key_bgsd, value_bgse, part_y, y, wide(part_sums), wide(log_sum)),
        [&](auto on, auto* pq, auto* pk, auto* pv, auto* parts, auto* py, auto* sums, auto* all) {
          kernels::block_attention_forward(on, n, plan.shape, ids_at(plan.starts), {pq, pk, pv}, parts, sums);
          kernels::add_block_parts(on, n, E, ids_at(plan.places), parts, sums, {py, false}, all);
        });
  }
  AttentionOptions kept = options;
  kept.block_scores = {};  // the plan has the choice
  return record_fused(
      kOp, {query, key_bgsd, value_bgse},
      {query, key_bgsd, value_bgse, y, log_sum, plan.rows, plan.places, plan.starts, plan.from, plan.to,
       plan.units, plan.key_mask},
      y,
      [=](const Tensor& dy, const Gradients& into) {
        const Tensor queries = plan.of_parts(query, D), part_y = plan.of_parts(y, E),
                     part_dy = plan.of_parts(dy, E), sums = plan.of_parts(log_sum, 1);
        const Tensor dqueries = into[0] ? Tensor::empty_like(queries) : Tensor();
        plan.count_products(3, 2);
        dispatch(kOp,
                 operands(queries, key_bgsd, value_bgse, part_y, part_dy, dqueries, wide(sums), into[0],
                          into[1], into[2]),
                 [&](auto on, auto* pq, auto* pk, auto* pv, auto* py, auto* pd, auto* parts, auto* log_sums,
                     auto dq, auto dk, auto dv) {
                   kernels::block_attention_backward(on, plan.sizes, plan.shape, ids_at(plan.starts),
                                                     {pq, pk, pv}, py, log_sums, pd,
                                                     {{parts, false}, dk, dv});
                   if (dq)
                     kernels::add_block_parts(on, plan.sizes, D, ids_at(plan.places), parts, {}, dq, {});
                 });
      },
      [=] { return composed_block_attention(query, key_bgsd, value_bgse, kept, plan); });
}

}  // namespace tapeformer
