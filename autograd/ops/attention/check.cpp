#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/attention/check.h>
#include <tapeformer/autograd/ops/ids.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace tapeformer {
namespace {

struct Sizes {
  Index B, T, S, H;
};

std::string text_of(const char* op, const char* rule, const std::string& got, const char* remedy) {
  return std::string("[") + op + "] " + rule + "; got " + got + "; try " + remedy;
}

/// `got()` is called only for an error: building the string would cost every step an allocation.
template <class E, class Got>
void require(bool holds, const char* op, const char* rule, const Got& got, const char* remedy) {
  if (holds) return;
  throw E(text_of(op, rule, got(), remedy));
}

std::string named(const char* name, const Tensor& x) { return std::string(name) + "=" + x.describe(); }

template <class Got>
void check_row_mask(const char* op, const char* name, const Tensor& mask, const Shape& shape,
                    const Got& got) {
  if (!mask.defined()) return;
  const auto mask_and_all = [&] { return named(name, mask) + ", " + got(); };
  require<DTypeError>(mask.dtype() == DType::boolean, op, "key_mask and query_mask must be bool",
                      mask_and_all, "true for what may attend and be attended to");
  require<ShapeError>(mask.shape() == shape, op, "key_mask must be [B, S] and query_mask [B, T]",
                      mask_and_all, "one row for every sequence of the batch");
}

template <class Got>
void check_pair_mask(const char* op, const Tensor& mask, DType type, const Sizes& n, const Got& got) {
  if (!mask.defined()) return;
  const auto mask_and_all = [&] { return named("mask", mask) + ", " + got(); };
  require<DTypeError>(mask.dtype() == DType::boolean || mask.dtype() == type || mask.dtype() == wide(type),
                      op, "the mask must be bool or of the query's type", mask_and_all,
                      "mask.to(query.dtype()) for one to add, or a bool one with true for may attend");
  const Shape scores{n.B, n.H, n.T, n.S};
  bool fits = mask.rank() <= 4;
  for (int axis = -1; fits && axis >= -mask.rank(); --axis) {
    fits = mask.size(axis) == 1 || mask.size(axis) == scores[axis];
  }
  require<ShapeError>(fits, op, "the mask must broadcast to [B, H, T, S]", mask_and_all,
                      "sizes of 1 where it repeats");
}

void check_devices(const char* op, const AttentionOptions& options, const Tensor& like) {
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
  for (const auto& [name, x] : all) require_same_device(op, name, *x, like);
}

/// Checks numbers on the device by a rule of kernels/ids.h. A GPU reports the first that is not allowed
/// later, so the message is prepared here.
template <class Rule, class Describe, class Got>
void check_numbers(const Rule& rule, const Tensor& x, const Describe& describe, const Got& got) {
  if (x.device().is_cuda()) {
    count_by(rule, x, [describe, operands = got()](const cuda::DeviceErrorSlot& error) {
      return describe(error, operands);
    });
  } else {
    count_by(rule, x, [&](const cuda::DeviceErrorSlot& error) { return describe(error, got()); });
  }
}

/// The part of messages about lengths.
struct Lengths {
  const char *name, *rule, *remedy;
};
constexpr Lengths kKeyLengths{"key_lengths", "key_lengths must be i32 and at most the number of keys",
                              "the number of keys that are there, 0 for none"};
constexpr Lengths kPrefixLengths{"prefix_lengths", "prefix_lengths must be i32 and not negative",
                                 "0 for none"};

/// i32 [count], allowed by the rule.
template <class Rule, class Got>
void check_lengths(const char* op, const Lengths& lengths, const Tensor& x, Index count, const Rule& rule,
                   const Got& got) {
  const auto all = [&] { return named(lengths.name, x) + ", " + got(); };
  require<DTypeError>(x.dtype() == DType::i32, op, lengths.rule, all, "to(DType::i32)");
  require<ShapeError>(x.shape() == Shape{count}, op, lengths.rule, all,
                      "one number for every sequence of the batch, or of the packed ones");
  const auto describe = [op, lengths](const cuda::DeviceErrorSlot& error, const std::string& operands) {
    const std::string number =
        std::to_string(error.value) + " at [" + std::to_string(error.position) + "] of ";
    return text_of(op, lengths.rule, number + operands, lengths.remedy);
  };
  check_numbers(rule, x, describe, all);
}

/// Starts rise from 0 to `end`.
template <class Got>
void check_starts(const char* op, const char* name, const Tensor& starts, Index end, const Got& got) {
  const auto all = [&] { return named(name, starts) + ", " + got(); };
  require<DTypeError>(starts.dtype() == DType::i32, op, "query_starts and key_starts must be i32", all,
                      "to(DType::i32)");
  require<ShapeError>(starts.rank() == 1 && starts.elements() > 0, op,
                      "query_starts and key_starts must be [N + 1]", all,
                      "the first position of every sequence, and the number of all at the end");
  constexpr const char* kRule = "query_starts must rise from 0 to T, and key_starts from 0 to S";
  constexpr const char* kRemedy = "the running sums of the sequences' lengths, a 0 before them";
  const Index count = starts.elements();
  require<ShapeError>(count > 1 || end == 0, op, kRule, all, kRemedy);  // no sequence has these rows
  const auto describe = [op](const cuda::DeviceErrorSlot&, const std::string& operands) {
    return text_of(op, kRule, operands, kRemedy);
  };
  check_numbers(kernels::RisingStarts{count, end}, starts, describe, all);
}

template <class Got>
void check_sequences(const char* op, const AttentionMasks& masks, const Sizes& n, const Got& got) {
  const auto starts_and_all = [&] {
    return named("query_starts", masks.query_starts) + ", " + named("key_starts", masks.key_starts) + ", " +
           got();
  };
  if (!masks.query_starts.defined()) {
    require<ShapeError>(!masks.key_starts.defined(), op, "key_starts come with query_starts", starts_and_all,
                        "both");
    return;
  }
  require<ShapeError>(n.B == 1, op, "packed sequences must have B = 1", starts_and_all,
                      "all sequences one after the other, [1, T, H, D]");
  check_starts(op, "query_starts", masks.query_starts, n.T, got);
  require<ShapeError>(masks.key_starts.defined() || n.T == n.S, op,
                      "key_starts may be left out only when keys and queries are as many", starts_and_all,
                      "the starts of the keys' sequences as key_starts");
  if (!masks.key_starts.defined()) return;
  check_starts(op, "key_starts", masks.key_starts, n.S, got);
  require<ShapeError>(masks.key_starts.shape() == masks.query_starts.shape(), op,
                      "query_starts and key_starts must name as many sequences", starts_and_all,
                      "an empty range of keys where a sequence has none");
}

template <class Got>
void check_modifiers(const char* op, const AttentionModifiers& modifiers, DType type, const Sizes& n,
                     const Got& got) {
  const auto check = [&](const char* name, const Tensor& x, bool fits, const char* rule, const char* remedy) {
    if (!x.defined()) return;
    const auto x_and_all = [&] { return named(name, x) + ", " + got(); };
    require<DTypeError>(x.dtype() == wide(type), op,
                        "score_parameter, relative_bias and sinks must have the wide type", x_and_all,
                        "f64 beside an f64 query, else f32");
    require<ShapeError>(fits, op, rule, x_and_all, remedy);
  };
  const Tensor &parameter = modifiers.score_parameter, &relative = modifiers.relative_bias;
  check("score_parameter", parameter,
        parameter.defined() && (parameter.shape() == Shape{1} || parameter.shape() == Shape{n.H}),
        "score_parameter must be [1] or [H]", "one number for all heads, or one for each");
  require<ShapeError>(parameter.defined() == (modifiers.score_function != ScoreFunction::none), op,
                      "a score_function comes with its score_parameter, and none with none", got,
                      "both, or neither");
  const Index reach = std::max<Index>({n.T, n.S, 1}) - 1;
  check("relative_bias", relative,
        relative.defined() && relative.rank() == 2 && (relative.size(0) == 1 || relative.size(0) == n.H) &&
            relative.size(1) % 2 == 1 && relative.size(1) / 2 >= reach,
        "relative_bias must be [H, 2 R + 1] or [1, 2 R + 1] with R at least max(T, S) - 1",
        "more entries, from distance -R to R");
  const Tensor& sinks = modifiers.sinks;
  check("sinks", sinks, sinks.defined() && sinks.shape() == Shape{n.H}, "sinks must be [H]",
        "one number for each head of the query");
  require<ShapeError>(!sinks.defined() || modifiers.weighting == AttentionWeighting::softmax, op,
                      "sinks belong to softmax; with sigmoid weights there is no sum for them to join", got,
                      "AttentionWeighting::softmax, or no sinks");
}

template <class Got>
void check_options(const char* op, const AttentionOptions& options, const Sizes& n, const Tensor& like,
                   const Got& got) {
  check_devices(op, options, like);
  check_row_mask(op, "key_mask", options.key_mask, {n.B, n.S}, got);
  check_row_mask(op, "query_mask", options.query_mask, {n.B, n.T}, got);
  check_pair_mask(op, options.mask, like.dtype(), n, got);
  check_modifiers(op, options, like.dtype(), n, got);
  check_sequences(op, options, n, got);

  const bool packed = options.query_starts.defined();
  const Index count = packed ? options.query_starts.elements() - 1 : n.B;
  if (options.key_lengths.defined() && packed) {
    const Tensor& starts = options.key_starts.defined() ? options.key_starts : options.query_starts;
    const kernels::LengthsWithin sequences{starts.address<std::int32_t>()};
    check_lengths(op, kKeyLengths, options.key_lengths, count, sequences, got);
  } else if (options.key_lengths.defined()) {
    check_lengths(op, kKeyLengths, options.key_lengths, count, kernels::IdRange{0, n.S + 1}, got);
  }
  if (options.prefix_lengths.defined()) {
    constexpr kernels::IdRange kNotNegative{0, kernels::IdRange::kNone};
    check_lengths(op, kPrefixLengths, options.prefix_lengths, count, kNotNegative, got);
  }

  require<ShapeError>(
      options.window_before >= kUnlimited && options.window_after >= kUnlimited, op,
      "window_before and window_after must not be negative",
      [&] {
        return "window_before=" + std::to_string(options.window_before) +
               ", window_after=" + std::to_string(options.window_after) + ", " + got();
      },
      "kUnlimited for no limit");
  require<ShapeError>(
      options.dropout >= 0 && options.dropout < 1, op, "dropout must be in [0, 1)",
      [&] { return "dropout=" + std::to_string(options.dropout) + ", " + got(); }, "0 for none");
  require<ShapeError>(
      std::isfinite(options.scale), op, "scale must be finite",
      [&] { return "scale=" + std::to_string(options.scale) + ", " + got(); }, "0 for 1 / sqrt(D)");
}

}  // namespace

void check_attention(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                     const AttentionOptions& options) {
  const auto got = [&] {
    return named("query", query) + ", " + named("key", key) + ", " + named("value", value);
  };
  require<ShapeError>(query.rank() == 4 && key.rank() == 4 && value.rank() == 4, op,
                      "query must be [B, T, H, D], key [B, S, G, D], value [B, S, G, E]", got,
                      "reshape with one head, [B, T, 1, D]");
  require<ShapeError>(key.size(0) == query.size(0) && key.size(3) == query.size(3), op,
                      "query and key must agree in B and D", got, "projections of equal width");
  require<ShapeError>(
      value.size(0) == key.size(0) && value.size(1) == key.size(1) && value.size(2) == key.size(2), op,
      "key and value must agree in B, S and G", got, "keys and values made from the same tokens");
  const Index H = query.size(2), G = key.size(2);
  require<ShapeError>(H > 0 && G > 0 && H % G == 0, op, "H must be a multiple of G, and both positive", got,
                      "a number of key heads that divides the number of query heads");
  check_options(op, options, {query.size(0), query.size(1), key.size(1), H}, query, got);
}

void check_packed_attention(const char* op, const Tensor& packed, const PackedHeads& heads,
                            const AttentionOptions& options) {
  const auto got = [&] {
    return named("packed", packed) + ", heads=" + std::to_string(heads.heads) +
           ", groups=" + std::to_string(heads.groups) + ", key_width=" + std::to_string(heads.key_width) +
           ", value_width=" + std::to_string(heads.value_width);
  };
  require<ShapeError>(heads.groups > 0 && heads.heads > 0 && heads.heads % heads.groups == 0 &&
                          heads.key_width >= 0 && heads.value_width >= 0,
                      op, "heads must be a multiple of groups, both positive, and no width negative", got,
                      "a number of groups that divides the number of heads");
  require<ShapeError>(packed.rank() == 3 && packed.size(2) == heads.width(), op,
                      "packed must be [B, T, H D + G D + G E]", got,
                      "a projection of PackedHeads::width() outputs");
  const Index T = packed.size(1);
  check_options(op, options, {packed.size(0), T, T, heads.heads}, packed, got);
}

}  // namespace tapeformer
