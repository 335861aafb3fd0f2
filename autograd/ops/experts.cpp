#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/kernels/experts.h>
#include <tapeformer/autograd/ops/experts.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>
#include <limits>

namespace tapeformer {
namespace {

template <class T>
kernels::Write<T> assigned(T* to) {
  return {to, false};
}
template <class T>
kernels::Write<T> assigned(kernels::Write<T> to) {
  return to;
}

/// Writes a^T b of each expert's rows of a [M, A] and b [M, B] to a tensor, or a slot, of [E, A, B].
template <class Target>
void write_outer(const Tensor& a, const Tensor& b, const Tensor& starts, const Target& target) {
  const kernels::ExpertProducts sizes{a.size(0), starts.size(0) - 1, b.size(1), a.size(1)};
  const std::int32_t* start = starts.address<std::int32_t>();
  count_flops("expert_linear", 2 * sizes.rows * sizes.k * sizes.n);
  dispatch("expert_linear", operands(a, b, wide(target)), [&](auto on, auto* pa, auto* pb, auto to) {
    kernels::outer_by_expert(on, sizes, start, pa, pb, assigned(to));
  });
}

Tensor outer_by_expert(const Tensor& a, const Tensor& b, const Tensor& starts);

/// Each row of x times the matrix of its expert, or times its transpose.
Tensor multiply_by_expert(const Tensor& x, const Tensor& weight, const Tensor& starts, bool transposed) {
  const kernels::ExpertProducts sizes{x.size(0), weight.size(0), weight.size(transposed ? 1 : 2), x.size(1),
                                      transposed};
  const std::int32_t* start = starts.address<std::int32_t>();
  const Tensor y = Tensor::empty({sizes.rows, sizes.n}, x.dtype(), x.device());
  count_flops("expert_linear", 2 * sizes.rows * sizes.n * sizes.k);
  dispatch("expert_linear", operands(x, weight, y), [&](auto on, auto* px, auto* pw, auto* py) {
    kernels::multiply_by_expert(on, sizes, start, px, pw, assigned(py));
  });
  return record("expert_linear", {x, weight}, {x, weight, starts}, y,
                [x, weight, starts, transposed](const Tensor& dy, const Gradients& into) {
                  if (into[0]) into[0] += multiply_by_expert(dy, weight, starts, !transposed);
                  if (!into[1]) return;
                  const Tensor &a = transposed ? dy : x, &b = transposed ? x : dy;
                  if (into.recorded())
                    into[1] += outer_by_expert(a, b, starts);
                  else
                    write_outer(a, b, starts, into[1]);
                });
}

/// write_outer() to a new tensor, in the wide type.
Tensor outer_by_expert(const Tensor& a, const Tensor& b, const Tensor& starts) {
  const Tensor y = Tensor::empty({starts.size(0) - 1, a.size(1), b.size(1)}, wide(a.dtype()), a.device());
  write_outer(a, b, starts, y);
  return record("expert_outer", {a, b}, {a, b, starts}, y,
                [a, b, starts](const Tensor& dy, const Gradients& into) {
                  const Tensor d = cast(dy, a.dtype());
                  if (into[0]) into[0] += multiply_by_expert(b, d, starts, true);
                  if (into[1]) into[1] += multiply_by_expert(a, d, starts, false);
                });
}

}  // namespace

ExpertChoice choose_experts(const Tensor& scores, Index active, const ExpertGroups& groups) {
  require(scores.rank() == 2 && active >= 1 && active <= scores.size(1), "choose_experts",
          "scores must be [N, E], of which 1 to E are chosen", {{"scores", scores}, {"active", active}});
  const Index in_group = scores.size(1) / std::max<Index>(groups.all, 1);
  require(groups.active >= 1 && groups.active <= groups.all && in_group * groups.all == scores.size(1) &&
              in_group >= (groups.sums_two ? 2 : 1) && groups.active * in_group >= active,
          "choose_experts", "groups must divide the experts, and those of a token must have enough",
          {{"scores", scores}, {"active", active}, {"groups", groups.all}, {"active_groups", groups.active}});
  require(scores.elements() <= std::numeric_limits<std::int32_t>::max(), "choose_experts",
          "places must fit in 32 bits", {{"scores", scores}}, "fewer tokens in a batch");
  const kernels::ExpertSizes sizes{scores.size(0), scores.size(1), active,
                                   groups.all,     groups.active,  groups.sums_two};
  const auto integers = [&](const Shape& shape) { return Tensor::empty(shape, DType::i32, scores.device()); };
  const ExpertChoice choice{integers({sizes.tokens, active}), integers({sizes.tokens, active}),
                            integers({sizes.choices()}), integers({sizes.experts + 1}),
                            Tensor::empty({sizes.experts}, wide(scores.dtype()), scores.device())};
  const auto address = [](const Tensor& x) { return x.address<std::int32_t>(); };
  dispatch("choose_experts", operands(scores, wide(choice.shares)), [&](auto on, auto* from, auto* shares) {
    kernels::choose_experts(on, sizes, from, address(choice.places));
    kernels::sort_by_expert(on, sizes, address(choice.places), address(choice.rows), address(choice.tokens),
                            address(choice.starts), shares);
  });
  return choice;
}

Tensor expert_linear(const Tensor& x, const Tensor& weight, const Tensor& starts) {
  require_i32("expert_linear", "starts", starts);
  require(x.rank() == 2 && weight.rank() == 3 && x.size(1) == weight.size(2) &&
              starts.shape() == Shape{weight.size(0) + 1},
          "expert_linear", "x [M, In], weight [E, Out, In] and starts [E + 1] must fit",
          {{"x", x}, {"weight", weight}, {"starts", starts}});
  require_same_device("expert_linear", "starts", starts, x);
  const kernels::RisingStarts rule{starts.elements(), x.size(0)};
  for (Index i = 0; i < rule.count && !x.device().is_cuda(); ++i)
    require(rule.allows(starts.data<std::int32_t>(), i), "expert_linear", "starts must rise from 0 to M",
            {{"start", starts.at(i)}, {"position", i}, {"x", x}}, "those of choose_experts()");
  return multiply_by_expert(x, weight, starts, true);
}

}  // namespace tapeformer
