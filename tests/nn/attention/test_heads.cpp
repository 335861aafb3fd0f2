#include <tapeformer/nn/attention/heads.h>
#include <tapeformer/tests/autograd/ops/attention_search.h>
#include <tapeformer/tests/nn/module_case.h>
#include <tapeformer/tests/reference/random_cases.h>

#include <algorithm>

using namespace tapeformer;

namespace {

const PackedHeads kHeads{2, 1, 3, 2};  // H, G, D, E

KeyValueHeads fresh(Index tokens, std::uint64_t seed) {
  return {random_values({2, tokens, 1, 3}, seed), random_values({2, tokens, 1, 2}, seed + 1)};
}

/// `count` columns or rows of a mask from `from` on, unless it repeats along the axis.
Tensor part_of(const Tensor& mask, int axis, Index from, Index count) {
  if (!mask.defined() || mask.rank() < -axis || mask.size(axis) == 1) return mask;
  if (mask.dtype() != DType::boolean) return slice(mask, axis, from, count);
  return slice(mask.to(DType::f32), axis, from, count).to(DType::boolean);
}

/// A cache whose memory held NaN before.
std::unique_ptr<KvCache> used_cache(const AttentionProblem& problem, const PackedHeads& heads,
                                    const AttentionInputs& in) {
  const bool is_paged = problem.block_size > 0;
  const CacheKind kind = is_paged ? CacheKind::paged : CacheKind::contiguous;
  const Index capacity = problem.seed % 2 == 0 ? in.S() : 0;
  auto cache = make_cache({kind, capacity, std::max<Index>(problem.block_size, 1)},
                          {heads.groups * heads.key_width, heads.groups * heads.value_width});
  append_heads(*cache, {Tensor::full(in.key.shape(), kNan, in.key.dtype(), in.key.device()),
                        Tensor::full(in.value.shape(), kNan, in.value.dtype(), in.value.device())});
  is_paged ? cache->clear() : cache->set_length(0);
  return cache;
}

/// The outputs of queries given some at a time, each with its key and value.
AttentionPath decoding(DType type) {
  AttentionPath path{std::string("cached ") + name_of(type), type, {}};
  path.run = [=](const AttentionCase& c, const Tensor&, const AttentionProblem& problem) {
    const auto here = [&](const Tensor& x) { return x.to(type).to(default_device()); };
    const AttentionInputs in{here(c.in.query), here(c.in.key), here(c.in.value)};
    const PackedHeads heads = heads_of(in);
    const auto cache = used_cache(problem, heads, in);
    TensorList rows;
    for (Index from = 0; from < in.T(); from += problem.tokens) {
      const Index count = std::min(problem.tokens, in.T() - from), held = from + count;
      AttentionOptions options = moved(c.options, default_device());
      options.key_mask = part_of(options.key_mask, -1, 0, held);
      options.query_mask = part_of(options.query_mask, -1, from, count);
      options.mask = part_of(part_of(options.mask, -1, 0, held), -2, from, count);
      const KeyValueHeads all =
          cached_kv(*cache, heads, options, {slice(in.key, 1, from, count), slice(in.value, 1, from, count)});
      rows.push_back(attention_by(scaled_dot_product_attention,
                                  options)({slice(in.query, 1, from, count), all.key_bsgd, all.value_bsge}));
    }
    return OpResult{concat(rows, 1), {}};
  };
  path.fit = [](AttentionProblem& p) {
    p.keys = p.queries, p.causal = 1, p.sequences = p.own_keys = p.top_left = p.prefix = p.lengths = 0;
    p.dropout = 0;  // its draw is of an element among all
  };
  return path;
}

}  // namespace

TEST_CASE("a width that is left out is the heads' share of the whole") {
  const PackedHeads both = resolved_heads("op", 12, 0, {4, 2, 0, 0});
  CHECK(both.heads == 4);
  CHECK(both.groups == 2);
  CHECK(both.key_width == 3);
  CHECK(both.value_width == 3);
  const PackedHeads values = resolved_heads("op", 12, 0, {4, 4, 5, 0});
  CHECK(values.key_width == 5);
  CHECK(values.value_width == 3);
  CHECK(resolved_heads("op", 10, 0, {4, 4, 5, 6}).value_width == 6);  // no size follows from the width
  const PackedHeads wider = resolved_heads("op", 3, 20, {4, 4, 0, 0});
  CHECK(wider.key_width == 5);
  CHECK(wider.value_width == 5);
}

TEST_CASE("sizes that do not fit are refused by name and value") {
  const auto refused = [](Index width, const PackedHeads& heads, Index output_width = 0) {
    return message_of<Error>([&] { resolved_heads("op", width, output_width, heads, "kind=x, "); });
  };
  CHECK(refused(0, {1, 1, 2, 2}) == "[op] width and heads must be positive; got kind=x, width=0, heads=1");
  CHECK(refused(12, {4, 3, 0, 0}) ==
        "[op] heads must be a multiple of groups; got kind=x, heads=4, groups=3");
  CHECK(refused(12, {4, 4, -3, 0}) == "[op] no size may be negative; got kind=x, key_width=-3");
  CHECK(refused(10, {4, 4, 3, 0}) ==
        "[op] width must be divisible by heads; got kind=x, width=10, heads=4; try a width that is a "
        "multiple of the heads");
  CHECK(refused(12, {4, 4, 3, 0}, 10) ==
        "[op] output_width must be divisible by heads; got kind=x, output_width=10, heads=4; try a width "
        "that is a multiple of the heads");
  CHECK(refused(12, {4, 4, 0, 0}, -8) == "[op] no size may be negative; got kind=x, output_width=-8");
}

TEST_CASE("random attention: decoding with a cache, whatever its memory and masked keys hold") {
  for (const DType type : {DType::f64, DType::f32}) search(decoding(type), cases_here(random_cases(300)));
}

TEST_CASE("self-attention sees all tokens so far, and masks grow to the cache's room") {
  const auto cache = make_cache({CacheKind::contiguous, 8, 1}, {3, 2});
  TensorList keys, values;
  for (Index step = 0; step < 2; ++step) {
    AttentionOptions masks;
    masks.key_mask = Tensor::full({2, 3 * (step + 1)}, 1, DType::boolean);
    masks.mask = random_values({3, 3 * (step + 1)}, 7);
    const Tensor mask = masks.mask;
    const KeyValueHeads own = fresh(3, static_cast<std::uint64_t>(10 * step + 1));
    keys.push_back(own.key_bsgd);
    values.push_back(own.value_bsge);
    const KeyValueHeads got = cached_heads(cache.get(), true, kHeads, masks, [&] { return own; });
    const Index held = 3 * (step + 1);
    CHECK(cache->length() == held);
    CHECK(got.key_bsgd.shape() == Shape{2, 8, 1, 3});
    CHECK(got.value_bsge.shape() == Shape{2, 8, 1, 2});
    CHECK(same_bits(slice(got.key_bsgd, 1, 0, held), concat(keys, 1)));
    CHECK(same_bits(slice(got.value_bsge, 1, 0, held), concat(values, 1)));
    CHECK(masks.key_lengths.to_vector<std::int32_t>() ==
          std::vector<std::int32_t>(2, static_cast<std::int32_t>(held)));
    CHECK(same_bits(masks.key_mask, real_tokens({held, held}, 8)));
    CHECK(same_bits(slice(masks.mask, 1, 0, held), mask));
    CHECK(masks.mask.shape() == Shape{3, 8});
  }
}

TEST_CASE("where a tape records, the spare room stays behind, so that masks get their gradients") {
  const auto cache = make_cache({CacheKind::contiguous, 8, 1}, {3, 2});
  append_heads(*cache, fresh(3, 1));
  Tape tape;
  AttentionOptions options;
  options.mask = random_values({2, 3}, 7);
  const Tensor mask = options.mask;
  const KeyValueHeads got = cached_kv(*cache, kHeads, options);
  CHECK(same_bits(got.key_bsgd, fresh(3, 1).key_bsgd));
  CHECK(same_bits(got.value_bsge, fresh(3, 1).value_bsge));
  CHECK(options.mask.state() == mask.state());
  CHECK_FALSE(options.key_lengths.defined());
}
