#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/ops/attention/plan.h>
#include <tapeformer/autograd/ops/ids.h>
#include <tapeformer/autograd/ops/require.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

/// An attention's operation, inputs and sizes.
struct Call {
  const char* op;
  Named inputs;
  const Tensor& query;  // or the packed projection
  Index B, T, S, H;

  template <class E = ShapeError, class... More>
  void require(bool holds, const char* rule, const char* remedy, const More&... more) const {
    tapeformer::require<E>(holds, op, rule, {more..., inputs}, remedy);
  }
};

void check_row_mask(const Call& call, const char* name, const Tensor& mask, const Shape& shape) {
  if (!mask.defined()) return;
  call.require<DTypeError>(mask.dtype() == DType::boolean, "key_mask and query_mask must be bool",
                           "true for tokens that may attend and be attended to", Named(name, mask));
  call.require(mask.shape() == shape, "key_mask must be [B, S] and query_mask [B, T]",
               "one row for every sequence of the batch", Named(name, mask));
}

void check_pair_mask(const Call& call, const Tensor& mask) {
  if (!mask.defined()) return;
  const DType type = call.query.dtype();
  call.require<DTypeError>(
      mask.dtype() == DType::boolean || mask.dtype() == type || mask.dtype() == wide(type),
      "the mask must be bool or of the query's type",
      "mask.to(query.dtype()) for a mask that is added, or a bool one, true where a query may attend",
      Named("mask", mask));
  const Shape scores{call.B, call.H, call.T, call.S};
  bool fits = mask.rank() <= 4;
  for (int axis = -1; fits && axis >= -mask.rank(); --axis)
    fits = mask.size(axis) == 1 || mask.size(axis) == scores[axis];
  call.require(fits, "the mask must broadcast to [B, H, T, S]", "sizes of 1 where it repeats",
               Named("mask", mask));
}

/// Checks numbers by a rule of kernels/ids.h. A GPU reports the first forbidden one later, so the message is
/// prepared here.
template <class Rule>
void check_numbers(const Call& call, const char* name, const Tensor& x, const Rule& allowed, const char* rule,
                   const char* remedy) {
  const auto describe = [op = call.op, rule, remedy](const cuda::DeviceErrorSlot& error,
                                                     const std::string& operands) {
    return refusal(op, rule, format("{} at [{}] of {}", error.value, error.position, operands), remedy);
  };
  const auto operands = [&] { return Named(name, x).text() + ", " + call.inputs.text(); };
  if (x.device().is_cuda())
    count_by(allowed, x, [describe, text = operands()](const auto& error) { return describe(error, text); });
  else
    count_by(allowed, x, [&](const auto& error) { return describe(error, operands()); });
}

/// Checks that x is i32 [count] and allowed by the rule.
template <class Rule>
void check_lengths(const Call& call, const char* name, const Tensor& x, Index count, const Rule& allowed,
                   const char* rule, const char* remedy) {
  call.require<DTypeError>(x.dtype() == DType::i32, rule, "to(DType::i32)", Named(name, x));
  call.require(x.shape() == Shape{count}, rule,
               "one number for every sequence of the batch, or of the packed ones", Named(name, x));
  check_numbers(call, name, x, allowed, rule, remedy);
}

/// Checks that starts rise from 0 to `end`.
void check_starts(const Call& call, const char* name, const Tensor& starts, Index end) {
  call.require<DTypeError>(starts.dtype() == DType::i32, "query_starts and key_starts must be i32",
                           "to(DType::i32)", Named(name, starts));
  call.require(starts.rank() == 1 && starts.elements() > 0, "query_starts and key_starts must be [N + 1]",
               "the first position of every sequence, and the total at the end", Named(name, starts));
  constexpr const char* kRule = "query_starts must rise from 0 to T, and key_starts from 0 to S";
  constexpr const char* kRemedy = "the running sums of the sequences' lengths, a 0 before them";
  const Index count = starts.elements();
  call.require(count > 1 || end == 0, kRule, kRemedy, Named(name, starts));  // no sequence has these rows
  check_numbers(call, name, starts, kernels::RisingStarts{count, end}, kRule, kRemedy);
}

void check_sequences(const Call& call, const AttentionMasks& masks) {
  const Tensor &queries = masks.query_starts, &keys = masks.key_starts;
  const Named starts[] = {{"query_starts", queries}, {"key_starts", keys}};
  call.require(queries.defined() || !keys.defined(), "key_starts need query_starts", "both", starts);
  if (!queries.defined()) return;
  call.require(call.B == 1, "packed sequences must have B = 1",
               "all sequences one after the other, [1, T, H, D]", starts);
  check_starts(call, "query_starts", queries, call.T);
  call.require(keys.defined() || call.T == call.S,
               "key_starts may be left out only with as many keys as queries",
               "the starts of the keys' sequences as key_starts", starts);
  if (!keys.defined()) return;
  check_starts(call, "key_starts", keys, call.S);
  call.require(keys.shape() == queries.shape(),
               "query_starts and key_starts must name the same number of sequences",
               "an empty range of keys where a sequence has none", starts);
}

void check_modifiers(const Call& call, const AttentionModifiers& modifiers) {
  const auto check = [&](const char* name, const Tensor& x, bool fits, const char* rule, const char* remedy) {
    if (!x.defined()) return;
    call.require<DTypeError>(x.dtype() == wide(call.query.dtype()),
                             "score_parameter, relative_bias and sinks must have the wide type",
                             "f64 with an f64 query, else f32", Named(name, x));
    call.require(fits, rule, remedy, Named(name, x));
  };
  const Tensor &parameter = modifiers.score_parameter, &relative = modifiers.relative_bias;
  check("score_parameter", parameter,
        parameter.defined() && (parameter.shape() == Shape{1} || parameter.shape() == Shape{call.H}),
        "score_parameter must be [1] or [H]", "one number for all heads, or one for each");
  call.require(parameter.defined() == (modifiers.score_function != ScoreFunction::none),
               "score_function and score_parameter must be given together", "both, or neither");
  const Index reach = std::max<Index>({call.T, call.S, 1}) - 1;
  check("relative_bias", relative,
        relative.defined() && relative.rank() == 2 && (relative.size(0) == 1 || relative.size(0) == call.H) &&
            relative.size(1) % 2 == 1 && relative.size(1) / 2 >= reach,
        "relative_bias must be [H, 2 R + 1] or [1, 2 R + 1] with R at least max(T, S) - 1",
        "more entries, from distance -R to R");
  const Tensor& sinks = modifiers.sinks;
  check("sinks", sinks, sinks.defined() && sinks.shape() == Shape{call.H}, "sinks must be [H]",
        "one number for each head of the query");
  call.require(!sinks.defined() || modifiers.weighting == AttentionWeighting::softmax,
               "sinks belong to softmax; with sigmoid weights there is no sum for them to join",
               "AttentionWeighting::softmax, or no sinks");
}

void check_options(const Call& call, const AttentionOptions& options) {
  const std::pair<const char*, const Tensor*> all[] = {
      {"mask", &options.mask},
      {"key_mask", &options.key_mask},
      {"query_mask", &options.query_mask},
      {"key_lengths", &options.key_lengths},
      {"prefix_lengths", &options.prefix_lengths},
      {"query_starts", &options.query_starts},
      {"key_starts", &options.key_starts},
      {"score_parameter", &options.score_parameter},
      {"relative_bias", &options.relative_bias},
      {"sinks", &options.sinks},
  };
  for (const auto& [name, x] : all) require_same_device(call.op, name, *x, call.query);
  check_row_mask(call, "key_mask", options.key_mask, {call.B, call.S});
  check_row_mask(call, "query_mask", options.query_mask, {call.B, call.T});
  check_pair_mask(call, options.mask);
  check_modifiers(call, options);
  check_sequences(call, options);

  const bool packed = options.query_starts.defined();
  const Index count = packed ? options.query_starts.elements() - 1 : call.B;
  const auto check_key_lengths = [&](const auto& allowed) {
    check_lengths(call, "key_lengths", options.key_lengths, count, allowed,
                  "key_lengths must be i32 and at most the number of keys",
                  "the number of keys that are there, 0 for none");
  };
  if (options.key_lengths.defined() && packed) {
    const Tensor& starts = options.key_starts.defined() ? options.key_starts : options.query_starts;
    check_key_lengths(kernels::LengthsWithin{starts.address<std::int32_t>()});
  } else if (options.key_lengths.defined()) {
    check_key_lengths(kernels::IdRange{0, options.key_span > 1 ? kernels::IdRange::kNone : call.S + 1});
  }
  const Named spans[] = {{"key_stride", options.key_stride}, {"key_span", options.key_span}};
  const bool is_spanned = options.key_span > 1,
             is_plain = options.window_before == kUnlimited && options.window_after == kUnlimited &&
                        !packed && !options.prefix_lengths.defined() && !options.relative_bias.defined();
  call.require(options.key_stride > 0 && options.key_span >= options.key_stride &&
                   (!is_spanned || (is_plain && options.causal && options.key_lengths.defined())),
               "keys that cover several positions need a causal mask and key_lengths, and exclude "
               "windows, prefixes, packed sequences and relative biases",
               "key_stride=1, key_span=1 for a key per position", spans);
  if (options.prefix_lengths.defined()) {
    check_lengths(call, "prefix_lengths", options.prefix_lengths, count,
                  kernels::IdRange{0, kernels::IdRange::kNone}, "prefix_lengths must be i32 and not negative",
                  "0 for none");
  }
  const Named windows[] = {{"window_before", options.window_before}, {"window_after", options.window_after}};
  call.require(options.window_before >= kUnlimited && options.window_after >= kUnlimited,
               "window_before and window_after must not be negative", "kUnlimited for no limit", windows);
  call.require(options.dropout >= 0 && options.dropout < 1, "dropout must be in [0, 1)", "0 for none",
               Named("dropout", options.dropout));
  call.require(std::isfinite(options.scale), "scale must be finite", "0 for 1 / sqrt(D)",
               Named("scale", options.scale));
}

}  // namespace

void check_attention(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                     const AttentionOptions& options) {
  const Named inputs[] = {{"query", query}, {"key", key}, {"value", value}};
  const auto check = [&](bool holds, const char* rule, const char* remedy) {
    require(holds, op, rule, {inputs}, remedy);
  };
  check(query.rank() == 4 && key.rank() == 4 && value.rank() == 4,
        "query must be [B, T, H, D], key [B, S, G, D], value [B, S, G, E]",
        "reshape with one head, [B, T, 1, D]");
  check(key.size(0) == query.size(0) && key.size(3) == query.size(3), "query and key must agree in B and D",
        "projections of equal width");
  check(value.size(0) == key.size(0) && value.size(1) == key.size(1) && value.size(2) == key.size(2),
        "key and value must agree in B, S and G", "keys and values made from the same tokens");
  const Index H = query.size(2), G = key.size(2);
  check(H > 0 && G > 0 && H % G == 0, "H must be a multiple of G, and both positive",
        "a number of key heads that divides the number of query heads");
  check_options({op, inputs, query, query.size(0), query.size(1), key.size(1), H}, options);
}

void check_masks(const char* op, const Tensor& query, Index S, const AttentionMasks& masks) {
  const Named inputs[] = {{"query", query}, {"keys", S}};
  check_options({op, inputs, query, query.size(0), query.size(1), S, query.size(2)}, AttentionOptions(masks));
}

void check_packed_attention(const char* op, const Tensor& packed, const PackedHeads& heads,
                            const AttentionOptions& options) {
  const Named inputs[] = {{"packed", packed},
                          {"heads", heads.heads},
                          {"groups", heads.groups},
                          {"key_width", heads.key_width},
                          {"value_width", heads.value_width}};
  require(heads.groups > 0 && heads.heads > 0 && heads.heads % heads.groups == 0 && heads.key_width >= 0 &&
              heads.value_width >= 0,
          op, "heads must be a multiple of groups, both positive, and no width negative", {inputs},
          "a number of groups that divides the number of heads");
  require(packed.rank() == 3 && packed.size(2) == heads.width(), op, "packed must be [B, T, H D + G D + G E]",
          {inputs}, "a projection of PackedHeads::width() outputs");
  const Index T = packed.size(1);
  check_options({op, inputs, packed, packed.size(0), T, T, heads.heads}, options);
}

}  // namespace tapeformer
