#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/autograd/ops/broadcast.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/profile.h>

#include <cmath>

namespace tapeformer {
namespace {

bool is_additive(const Tensor& mask) { return mask.defined() && mask.dtype() != DType::boolean; }

kernels::HeadStrides dense(Index rows, Index heads, Index width) {
  return {rows * heads * width, heads * width, width};
}

}  // namespace

Tensor AttentionPlan::bias() const { return is_additive(options.mask) ? options.mask : Tensor(); }

double attention_scale(const AttentionOptions& options, Index D) {
  if (options.scale != 0) return options.scale;
  return D > 0 ? 1 / std::sqrt(static_cast<double>(D)) : 1;
}

AttentionPlan plan_attention(const AttentionSizes& n, const AttentionOptions& options, Device device) {
  AttentionPlan plan;
  plan.options = options;
  if (is_additive(options.mask)) plan.options.mask = cast(options.mask, wide(options.mask.dtype()));
  plan.visible = visible_keys(options, n.batch, n.queries, n.keys, device);
  kernels::AttentionShape& shape = plan.shape;
  shape.batch = n.batch, shape.queries = n.queries, shape.keys = n.keys;
  shape.heads = n.heads, shape.groups = n.groups;
  shape.key_width = n.key_width, shape.value_width = n.value_width;
  shape.query = dense(n.queries, n.heads, n.key_width);
  shape.key = dense(n.keys, n.groups, n.key_width);
  shape.value = dense(n.keys, n.groups, n.value_width);
  shape.scale = attention_scale(options, n.key_width);
  shape.key_from = address_or_null<std::int32_t>(plan.visible.from);
  shape.key_to = address_or_null<std::int32_t>(plan.visible.to);
  shape.key_mask = address_or_null<bool>(options.key_mask);
  const Shape scores{n.batch, n.heads, n.queries, n.keys};
  if (is_additive(options.mask)) {
    broadcast_strides(scores, options.mask.shape(), shape.bias_strides);
  } else if (options.mask.defined()) {
    shape.mask = options.mask.address<bool>();
    broadcast_strides(scores, options.mask.shape(), shape.mask_strides);
  }
  shape.function = options.score_function, shape.weighting = options.weighting;
  if (options.score_parameter.defined())
    shape.parameter_stride = options.score_parameter.elements() > 1 ? 1 : 0;
  if (options.relative_bias.defined()) {
    plan.positions = query_positions(options, n.batch, n.queries, n.keys, device);
    shape.positions = plan.positions.address<std::int32_t>();
    shape.reach = options.relative_bias.size(1) / 2;
    shape.relative_stride = options.relative_bias.size(0) > 1 ? options.relative_bias.size(1) : 0;
  }
  if (options.dropout > 0) {
    const DropoutDraw draw = draw_dropout(options.dropout, options.dropout_key);
    shape.drops = true;
    shape.dropout = draw.stream, shape.dropped = draw.dropped, shape.kept_scale = draw.kept_scale;
  }
  return plan;
}

AttentionPlan plan_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                             const AttentionOptions& options) {
  return plan_attention(
      {query.size(0), query.size(1), key.size(1), query.size(2), key.size(2), query.size(3), value.size(3)},
      options, query.device());
}

Tensor tiled_attention(const char* op, const AttentionPlan& plan, const AttentionTensors& in,
                       ComposedAttention fallback) {
  const kernels::AttentionShape& n = plan.shape;
  const AttentionOptions& options = plan.options;
  const Tensor &query = in.query, bias = plan.bias(), &relative = options.relative_bias,
               &parameter = options.score_parameter, &sinks = options.sinks;
  const bool is_packed = !in.key.defined();
  const Index key = n.heads * n.key_width, value = key + n.groups * n.key_width;  // their first columns
  const Tensor y = Tensor::empty({n.batch, n.queries, n.heads, n.value_width}, query.dtype(), query.device());
  const Tensor log_sum = Tensor::empty({n.batch, n.heads, n.queries}, wide(query.dtype()), query.device());
  count_products(op, plan, 1, 1);
  dispatch(op,
           operands(query, in.key, in.value, in.weight, wide(bias), wide(relative), wide(parameter),
                    wide(sinks), y, wide(log_sum)),
           [&](auto on, auto* pq, auto* pk, auto* pv, auto* weight, auto* pb, auto* pr, auto* pp, auto* ps,
               auto* py, auto* sums) {
             if (is_packed) pk = pq + key, pv = pq + value;
             kernels::attention_forward(on, plan.shape, {pq, pk, pv, weight, pb, pr, pp, ps}, py, sums);
           });
  return record_fused(
      op, {query, in.key, in.value, in.weight, bias, relative, parameter, sinks},
      {query, in.key, in.value, in.weight, y, log_sum, plan.visible.from, plan.visible.to, plan.positions,
       options.key_mask, options.mask, relative, parameter, sinks},
      y,
      [=](const Tensor& dy, const Gradients& into) {
        const auto backward = [&](const auto& run, const auto&... gradients) {
          dispatch(
              op,
              operands(query, in.key, in.value, in.weight, wide(plan.bias()),
                       wide(plan.options.relative_bias), wide(plan.options.score_parameter),
                       wide(plan.options.sinks), y, wide(log_sum), dy, gradients...),
              [&](auto on, auto* pq, auto* pk, auto* pv, auto* weight, auto* pb, auto* pr, auto* pp, auto* ps,
                  auto* py, auto* sums, auto* pd, const auto&... to) {
                if (is_packed) pk = pq + key, pv = pq + value;
                const kernels::AttentionOperands<std::remove_const_t<std::remove_pointer_t<decltype(pq)>>> x{
                    pq, pk, pv, weight, pb, pr, pp, ps};
                run(on, x, py, sums, pd, to...);
              });
        };
        if (into[0] || into[1] || into[2] || into[3]) {
          count_products(op, plan, in.weight.defined() ? 4 : 3, 2);
          backward(
              [&](auto on, const auto& x, auto* py, auto* sums, auto* pd, auto dq, auto dk, auto dv,
                  auto dweight) {
                if (is_packed) dk = {dq.to + key, dq.add}, dv = {dq.to + value, dq.add};
                kernels::attention_backward(on, plan.shape, x, py, sums, pd, {dq, dk, dv, dweight});
              },
              into[0], into[1], into[2], wide(into[3]));
        }
        if (into[4] || into[5] || into[6]) count_products(op, plan, 1, 1);
        if (into[4] || into[5] || into[6] || into[7]) {
          backward(
              [&](auto on, const auto& x, auto* py, auto* sums, auto* pd, auto... to) {
                kernels::attention_score_gradients(on, plan.shape, x, py, sums, pd, {to...});
              },
              wide(into[4]), wide(into[5]), wide(into[6]), wide(into[7]));
        }
      },
      [=] { return fallback(in, plan); });
}

void count_products(const char* op, const AttentionPlan& plan, Index of_key_width, Index of_value_width) {
  if (!is_profiled()) return;
  const kernels::AttentionShape& n = plan.shape;
  const Index pairs = count_pairs(plan.visible, n.batch * n.queries, n.keys);
  count_flops(op, 2 * pairs * n.heads * (of_key_width * n.key_width + of_value_width * n.value_width));
}

}  // namespace tapeformer
