#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/linear_attention.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/linear_attention.h>
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/require.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/tape/tape.h>

#include <cmath>

namespace tapeformer {
namespace {

constexpr const char* kLinearAttention = "linear_attention";

kernels::LinearAttention check_linear_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                                const LinearAttentionOptions& options) {
  const Tensor &decay = options.log_decay, &beta = options.beta, &state = options.state;
  const auto check = [&](bool holds, const char* rule, const char* remedy) {
    require(holds, kLinearAttention, rule,
            {{"query", query},
             {"key", key},
             {"value", value},
             {"log_decay", decay},
             {"beta", beta},
             {"state", state}},
            remedy);
  };
  check(query.rank() == 4 && key.shape() == query.shape() && value.rank() == 4 &&
            value.shape() == Shape{query.size(0), query.size(1), query.size(2), value.size(3)} &&
            query.size(3) > 0 && value.size(3) > 0,
        "query and key must be [B, T, H, D], value [B, T, H, E], D and E at least 1",
        "the same number of heads in all of them");
  const Index B = query.size(0), T = query.size(1), H = query.size(2), D = query.size(3), E = value.size(3);
  check(!decay.defined() || decay.shape() == Shape{B, T, H} || decay.shape() == Shape{B, T, H, D},
        "log_decay must be [B, T, H] or [B, T, H, D]", "a decay for each head, or for each of its channels");
  check(!beta.defined() || beta.shape() == Shape{B, T, H}, "beta must be [B, T, H]",
        "one number for each head");
  check(!state.defined() || state.shape() == Shape{B, H, D, E}, "state must be [B, H, D, E]",
        "the state of a call with as many rows");
  kernels::LinearAttention sizes{B, T, H, D, E};
  if (decay.defined()) sizes.decays = decay.rank() == 3 ? 1 : D;
  sizes.deltas = beta.defined();
  sizes.scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(D));
  return sizes;
}

/// Counts the products of the recurrence: of the state with a query and a key, and of a key with a value.
void count_products(const kernels::LinearAttention& n, Index passes) {
  count_flops(kLinearAttention, 2 * passes * (n.deltas ? 3 : 2) * n.sequences() * n.length * n.state_size());
}

/// y and the last state as one row of numbers, in the wide type, because a tape's fallback has one output.
Tensor joined(const Tensor& y, const Tensor& last) {
  return concat({reshape(cast(y, last.dtype()), {y.elements()}), reshape(last, {last.elements()})}, 0);
}

}  // namespace

Tensor composed_linear_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const LinearAttentionOptions& options) {
  const kernels::LinearAttention n = check_linear_attention(query, key, value, options);
  const DType type = wide(query.dtype());
  const auto at = [](const Tensor& x, Index t, const Shape& shape) {
    return reshape(slice(x, 1, t, 1), shape);
  };
  Tensor state_bhde = options.state;
  if (!state_bhde.defined())
    state_bhde = Tensor::zeros({n.batch, n.heads, n.key_width, n.value_width}, type, query.device());
  TensorList rows;
  for (Index t = 0; t < n.length; ++t) {
    if (n.decays > 0) {
      const Shape shape{n.batch, n.heads, n.decays, 1};
      state_bhde = state_bhde * exp(at(options.log_decay, t, shape));
    }
    const Shape row{n.batch, n.heads, 1, n.key_width};
    const Tensor key_bh1d = at(cast(key, type), t, row), query_bh1d = at(cast(query, type), t, row);
    Tensor update_bh1e = at(cast(value, type), t, {n.batch, n.heads, 1, n.value_width});
    if (n.deltas) {
      update_bh1e = at(cast(options.beta, type), t, {n.batch, n.heads, 1, 1}) *
                    (update_bh1e - matmul(key_bh1d, state_bhde));
    }
    state_bhde = state_bhde + matmul(transposed(key_bh1d), update_bh1e);
    rows.push_back(reshape(matmul(query_bh1d, state_bhde, n.scale), {n.batch, 1, n.heads, n.value_width}));
  }
  if (options.last_state != nullptr) *options.last_state = state_bhde;
  return rows.empty() ? value * 0 : cast(concat(rows, 1), query.dtype());
}

Tensor linear_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                        const LinearAttentionOptions& options) {
  const kernels::LinearAttention sizes = check_linear_attention(query, key, value, options);
  const Tensor decay = options.log_decay, beta = options.beta, state = options.state;
  const Tensor inputs[] = {query, key, value, decay, beta, state};
  const bool is_recorded = tape_for(kLinearAttention, inputs, 6) != nullptr,
             joins = options.last_state != nullptr;
  const DType type = wide(query.dtype());
  const Shape states{sizes.batch, sizes.heads, sizes.key_width, sizes.value_width};
  const Tensor y = Tensor::empty_like(value),
               last = joins ? Tensor::empty(states, type, y.device()) : Tensor();
  Tensor kept;
  if (is_recorded) {
    kept = Tensor::empty({sizes.sequences(), sizes.segments(), sizes.state_size()}, type, y.device());
  }
  count_products(sizes, 1);
  dispatch(kLinearAttention,
           operands(query, key, value, wide(decay), beta, wide(state), y, wide(kept), wide(last)),
           [&](auto on, auto* pq, auto* pk, auto* pv, auto* pg, auto* pb, auto* ps, auto* py, auto* held,
               auto* pl) {
             kernels::linear_attention_forward(on, sizes, {pq, pk, pv, pg, pb, ps}, py, held, pl);
           });
  if (!is_recorded) {
    if (joins) *options.last_state = last;
    return y;
  }
  const Index outputs = y.elements();
  const Tensor result = record_fused(
      kLinearAttention, {query, key, value, decay, beta, state},
      {query, key, value, decay, beta, state, kept}, joins ? joined(y, last).detach() : y,
      [=](const Tensor& gradient, const Gradients& into) {
        Tensor dy = gradient, dlast;
        if (joins) {
          const NoGradGuard pause;
          dy = cast(reshape(slice(gradient, 0, 0, outputs), value.shape()), query.dtype());
          dlast = slice(gradient, 0, outputs, states.elements());
        }
        count_products(sizes, 2);
        dispatch(kLinearAttention,
                 operands(query, key, value, wide(decay), beta, wide(state), wide(kept), dy, wide(dlast),
                          into[0], into[1], into[2], wide(into[3]), into[4], wide(into[5])),
                 [&](auto on, auto* pq, auto* pk, auto* pv, auto* pg, auto* pb, auto* ps, auto* held,
                     auto* pd, auto* pl, auto dq, auto dk, auto dv, auto dg, auto db, auto ds) {
                   kernels::linear_attention_backward(on, sizes, {pq, pk, pv, pg, pb, ps}, held, pd, pl,
                                                      {dq, dk, dv, dg, db, ds});
                 });
      },
      [=] {
        LinearAttentionOptions again{decay, beta, state, sizes.scale};
        Tensor end;
        if (joins) again.last_state = &end;
        const Tensor output = composed_linear_attention(query, key, value, again);
        return joins ? joined(output, end) : output;
      });
  if (!joins) return result;
  *options.last_state = reshape(slice(result, 0, outputs, states.elements()), states);
  return cast(reshape(slice(result, 0, 0, outputs), value.shape()), query.dtype());
}

}  // namespace tapeformer
