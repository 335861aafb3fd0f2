#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/sparse_attention.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/autograd/ops/attention/sparse_attention.h>
#include <tapeformer/autograd/ops/attention/visibility.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/profile.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace tapeformer {
namespace {

kernels::KeysOfQueries keys_in(const Tensor& chosen, Index S) {
  return {chosen.size(0), chosen.size(1), S, chosen.size(2), chosen.address<std::int32_t>()};
}

kernels::IndexSizes sizes_of(const IndexHeads& index) {
  const Index H = index.query.size(2), D = index.query.size(3);
  return {H, D, 1 / std::sqrt(static_cast<double>(D * H))};
}

/// For a profile: 2 operations for each chosen key.
Index operations_of(const Tensor& chosen, Index S) {
  if (!is_profiled()) return 0;
  const Tensor here = chosen.to(Device::cpu());
  const kernels::KeysOfQueries keys = keys_in(here, S);
  Index pairs = 0;
  for (Index row = 0; row < keys.rows(); ++row) pairs += keys.count(row);
  return 2 * pairs;
}

/// True if a query's keys are as choose_keys() gives them. With others, kernels could read beyond the keys.
bool is_choice(const kernels::KeysOfQueries& keys, Index row) {
  const std::int32_t *own = keys.of(row), *end = own + keys.count(row);
  const Index first = row / keys.queries * keys.keys;
  return std::adjacent_find(own, end, std::greater_equal<>()) == end &&
         (own == end || (*own >= first && end[-1] < first + keys.keys)) &&
         std::count(end, keys.of(row + 1), keys.all_keys()) == keys.of(row + 1) - end;
}

void check_index(const char* op, const IndexHeads& index) {
  const auto& [query, key, weights] = index;
  require(query.rank() == 4 && key.rank() == 3 && weights.rank() == 3 && key.size(0) == query.size(0) &&
              key.size(2) == query.size(3) &&
              weights.shape() == Shape{query.size(0), query.size(1), query.size(2)},
          op, "queries [B, T, H, D], keys [B, S, D] and weights [B, T, H] must fit",
          {{"query", query}, {"key", key}, {"weights", weights}});
}

void check_chosen(const char* op, const Tensor& chosen, const Tensor& query, const Tensor& keys) {
  require_i32(op, "chosen", chosen);
  require(chosen.rank() == 3 && chosen.size(0) == query.size(0) && chosen.size(1) == query.size(1) &&
              chosen.size(2) <= keys.size(1),
          op, "chosen must be [B, T, K], with K at most S",
          {{"chosen", chosen}, {"query", query}, {"keys", keys}}, "the result of choose_keys()");
  require_same_device(op, "chosen", chosen, query);
  const kernels::KeysOfQueries places = keys_in(chosen, keys.size(1));
  for (Index row = 0; row < places.rows() && !chosen.device().is_cuda(); ++row)
    require(is_choice(places, row), op, "a query's keys must be rows of its sequence, ascending",
            {{"chosen", chosen}, {"query", row}, {"keys", keys}}, "the result of choose_keys()");
}

/// index_scores() in plain operations: each query's keys side by side.
Tensor composed_index_scores(const IndexHeads& index, const Tensor& chosen) {
  const Index B = chosen.size(0), T = chosen.size(1), K = chosen.size(2), D = index.key.size(2),
              rows = B * index.key.size(1);
  const DType type = wide(index.query.dtype());
  const Tensor zero = Tensor::zeros({1, D}, type, chosen.device()),
               none = Tensor::zeros({1, 1}, type, chosen.device()) + kernels::kNoScore;
  const Tensor keys = concat({reshape(cast(index.key, type), {rows, D}), zero}, 0),
               offsets = concat({Tensor::zeros({rows, 1}, type, chosen.device()), none}, 0);
  const Tensor products_bthk = matmul(cast(index.query, type), transposed(embedding(keys, chosen)));
  const Tensor weights_bth1 = reshape(cast(index.weights, type), {B, T, index.query.size(2), 1});
  const Tensor sums = sum(relu(products_bthk) * weights_bth1, {2}) * sizes_of(index).scale;
  return sums + reshape(embedding(offsets, chosen), {B, T, K});
}

/// Attention with the choice as a mask.
Tensor composed_sparse_attention(const Tensor& query, const Tensor& latents, const Tensor& chosen,
                                 const SparseOptions& options) {
  const Index B = latents.size(0), S = latents.size(1);
  AttentionOptions masked;
  masked.scale = options.scale, masked.weights = options.weights;
  masked.mask = Tensor::empty({B, 1, query.size(1), S}, DType::boolean, query.device());
  dispatch_on("sparse_attention", query.device(), [&](auto on) {
    kernels::write_pairs_of_keys(on, keys_in(chosen, S), masked.mask.address<bool>());
  });
  const Tensor key_bs1n = reshape(latents, {B, S, 1, latents.size(2)});
  return composed_attention(query, key_bs1n, slice(key_bs1n, 3, 0, options.value_width), masked);
}

}  // namespace

Tensor choose_keys(const IndexHeads& index, Index top_k, const AttentionMasks& masks) {
  constexpr const char* kOp = "choose_keys";
  check_index(kOp, index);
  const Index B = index.query.size(0), T = index.query.size(1), S = index.key.size(1);
  if (masks.mask.defined())
    throw Error(
        "[choose_keys] a mask of pairs is not implemented; got mask; try causal, a window, or lengths");
  check_masks(kOp, index.query, S, masks);
  constexpr Index kMost = std::numeric_limits<std::int32_t>::max();
  require(top_k > 0 && B * S < kMost && B * T * std::min(top_k, S) < kMost, kOp,
          "a query needs one key or more, and keys and choices must be counted in 32 bits",
          {{"key", index.key}, {"top_k", top_k}}, "fewer sequences in a batch");
  const Tensor chosen = Tensor::empty({B, T, std::min(top_k, S)}, DType::i32, index.query.device());
  const VisibleKeys visible = visible_keys(masks, B, T, S, index.query.device());
  kernels::IndexSizes sizes = sizes_of(index);
  sizes.from = address_or_null<std::int32_t>(visible.from);
  sizes.to = address_or_null<std::int32_t>(visible.to);
  sizes.key_mask = address_or_null<bool>(masks.key_mask);
  if (is_profiled()) count_flops(kOp, 2 * count_pairs(visible, B * T, S) * sizes.heads * sizes.width);
  dispatch(kOp, operands(index.query, index.key, index.weights), [&](auto on, auto* pq, auto* pk, auto* pw) {
    kernels::choose_keys(on, keys_in(chosen, S), sizes, pq, pk, pw);
  });
  return chosen;
}

Tensor index_scores(const IndexHeads& index, const Tensor& chosen) {
  constexpr const char* kOp = "index_scores";
  check_index(kOp, index);
  check_chosen(kOp, chosen, index.query, index.key);
  const kernels::IndexSizes sizes = sizes_of(index);
  const Index S = index.key.size(1), products = operations_of(chosen, S) * sizes.heads * sizes.width;
  const Tensor scores = Tensor::empty(chosen.shape(), wide(index.query.dtype()), chosen.device());
  count_flops(kOp, products);
  dispatch(kOp, operands(index.query, index.key, index.weights, wide(scores)),
           [&](auto on, auto* pq, auto* pk, auto* pw, auto* to) {
             kernels::index_scores_forward(on, keys_in(chosen, S), sizes, pq, pk, pw, to);
           });
  return record_fused(
      kOp, {index.query, index.key, index.weights}, {index.query, index.key, index.weights, chosen}, scores,
      [=](const Tensor& dscores, const Gradients& into) {
        count_flops(kOp, 3 * products);
        dispatch(kOp,
                 operands(index.query, index.key, index.weights, wide(dscores), into[0], into[1], into[2]),
                 [&](auto on, auto* pq, auto* pk, auto* pw, auto* pd, auto dq, auto dk, auto dw) {
                   kernels::index_scores_backward(on, keys_in(chosen, S), sizes, pq, pk, pw, pd, dq, dk, dw);
                 });
      },
      [=] { return composed_index_scores(index, chosen); });
}

Tensor sparse_attention(const Tensor& query, const Tensor& latents, const Tensor& chosen,
                        const SparseOptions& options) {
  constexpr const char* kOp = "sparse_attention";
  require(query.rank() == 4 && latents.rank() == 3 && latents.size(0) == query.size(0) &&
              latents.size(2) == query.size(3) && options.value_width <= query.size(3),
          kOp, "queries [B, T, H, N] and latents [B, S, N], whose first are values, must fit",
          {{"query", query}, {"latents", latents}, {"value_width", options.value_width}});
  check_chosen(kOp, chosen, query, latents);
  if (options.weights != nullptr) {
    const Tensor composed_y = composed_sparse_attention(query, latents, chosen, options);
    if (options.shares == nullptr) return composed_y;  // the kernel alone computes shares
  }
  const Index B = query.size(0), T = query.size(1), S = latents.size(1);
  const kernels::SparseSizes sizes{query.size(2), query.size(3), options.value_width, options.scale};
  const Index products = operations_of(chosen, S) * sizes.heads;
  const Tensor y = Tensor::empty({B, T, sizes.heads, sizes.value_width}, query.dtype(), query.device());
  Tensor shares;
  if (options.shares != nullptr)
    shares = *options.shares = Tensor::empty(chosen.shape(), wide(query.dtype()), query.device());
  count_flops(kOp, products * (sizes.width + sizes.value_width));
  dispatch(kOp, operands(query, latents, y, wide(shares)),
           [&](auto on, auto* pq, auto* pl, auto* py, auto* ps) {
             kernels::sparse_attention_forward(on, keys_in(chosen, S), sizes, pq, pl, py, ps);
           });
  SparseOptions plain = options;
  plain.shares = plain.weights = nullptr;
  return record_fused(
      kOp, {query, latents}, {query, latents, chosen}, y,
      [=](const Tensor& dy, const Gradients& into) {
        count_flops(kOp, products * (3 * sizes.width + 2 * sizes.value_width));
        dispatch(kOp, operands(query, latents, dy, into[0], into[1]),
                 [&](auto on, auto* pq, auto* pl, auto* pd, auto dq, auto dl) {
                   kernels::sparse_attention_backward(on, keys_in(chosen, S), sizes, pq, pl, pd, dq, dl);
                 });
      },
      [=] { return composed_sparse_attention(query, latents, chosen, plain); });
}

}  // namespace tapeformer
