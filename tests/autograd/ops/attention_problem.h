#pragma once

#include <tapeformer/tests/autograd/ops/attention_case.h>

#include <algorithm>
#include <sstream>

namespace tapeformer {

inline Index any_of(std::initializer_list<Index> choices, Generator& random) {
  return choices.begin()[random.below(static_cast<Index>(choices.size()))];
}

inline bool once_in(Index n, Generator& random) { return random.below(n) == 0; }

/// Starts of N sequences, some of them empty, from 0 to `end`; often at borders of tiles.
inline Tensor random_starts(Index N, Index end, Generator& random) {
  const Tensor starts = random_ids({N + 1}, end + 1, random);
  const auto step = static_cast<std::int32_t>(any_of({1, 32, 64}, random));
  std::int32_t* start = starts.data<std::int32_t>();
  for (Index i = 0; i < N; ++i) start[i] -= start[i] % step;
  start[0] = 0, start[N] = static_cast<std::int32_t>(end);
  std::sort(start, start + N + 1);
  return starts;
}

/// bool or additive, of size 1 along the axes whose bits are set in `repeated`, some rows and elements
/// masked.
inline Tensor random_pair_mask(const Shape& scores, bool additive, Index repeated, Generator& random) {
  Shape shape = scores;
  for (int axis = 0; axis < 4; ++axis) {
    if ((repeated >> axis & 1) != 0) shape.set(axis, 1);
  }
  if (shape[0] == 1 && (repeated >> 4 & 1) != 0) shape = {shape[1], shape[2], shape[3]};
  const Tensor mask = random_normal(shape, random);
  const Index width = shape[-1];
  for (Index i = 0; i < mask.elements(); ++i) {
    if (once_in(6, random) || i / width % 7 == 3) mask.data<double>()[i] = -kInfinity;
  }
  if (additive) return mask;
  const Tensor may = Tensor::empty(shape, DType::boolean);
  for (Index i = 0; i < mask.elements(); ++i) may.data<bool>()[i] = mask.data<double>()[i] != -kInfinity;
  return may;
}

inline Tensor random_row_mask(const Shape& shape, Generator& random) {
  const Tensor mask = random_mask(shape, random);
  const Index real = random.below(shape[1] + 1);  // of the first ones all are, so that long runs appear
  for (Index i = 0; i < mask.elements(); ++i)
    mask.data<bool>()[i] = mask.data<bool>()[i] || i % shape[1] < real;
  return mask;
}

/// One attention as a few numbers, written as one line of text; the seed decides the rest.
struct AttentionProblem {
  Index seed = 0;
  Index batch = 1, groups = 1, repeats = 1;  // B, G, H / G
  Index queries = 1, keys = 1, key_width = 1, value_width = 1;
  Index sequences = 0, own_keys = 0;  // packed, 0: not; and with starts of their own for the keys
  Index causal = 0, top_left = 0, prefix = 0, before = kUnlimited, after = kUnlimited, lengths = 0;
  Index key_mask = 0, query_mask = 0;
  Index mask = 0, repeated = 0;                              // 1 bool, 2 additive; see random_pair_mask()
  Index scale = 0, dropout = 0;                              // in hundredths
  Index function = 0, relative = 0, sinks = 0, sigmoid = 0;  // a ScoreFunction; yes or no
  Index shared = 0;    // 1: one parameter for all heads, 2: one relative bias, 3: both
  Index junk = 0;      // in the rows that the masks leave out: one of four kinds, or all of them mixed
  Index overflow = 0;  // of masked pairs' scores
  Index threads = 1;   // on a CPU
  Index tokens = 1, block_size = 0;  // of a cache: at a time; of a paged one
};

struct ProblemField {
  const char* name;
  Index AttentionProblem::*value;
  Index simplest;
};

/// Fields that are best shrunk come first.
inline constexpr ProblemField kProblemFields[] = {
    {"B", &AttentionProblem::batch, 1},
    {"G", &AttentionProblem::groups, 1},
    {"repeats", &AttentionProblem::repeats, 1},
    {"T", &AttentionProblem::queries, 1},
    {"S", &AttentionProblem::keys, 1},
    {"D", &AttentionProblem::key_width, 1},
    {"E", &AttentionProblem::value_width, 1},
    {"sequences", &AttentionProblem::sequences, 0},
    {"own_keys", &AttentionProblem::own_keys, 0},
    {"dropout", &AttentionProblem::dropout, 0},
    {"mask", &AttentionProblem::mask, 0},
    {"repeated", &AttentionProblem::repeated, 0},
    {"key_mask", &AttentionProblem::key_mask, 0},
    {"query_mask", &AttentionProblem::query_mask, 0},
    {"lengths", &AttentionProblem::lengths, 0},
    {"prefix", &AttentionProblem::prefix, 0},
    {"causal", &AttentionProblem::causal, 0},
    {"top_left", &AttentionProblem::top_left, 0},
    {"before", &AttentionProblem::before, kUnlimited},
    {"after", &AttentionProblem::after, kUnlimited},
    {"function", &AttentionProblem::function, 0},
    {"relative", &AttentionProblem::relative, 0},
    {"sinks", &AttentionProblem::sinks, 0},
    {"sigmoid", &AttentionProblem::sigmoid, 0},
    {"shared", &AttentionProblem::shared, 0},
    {"scale", &AttentionProblem::scale, 0},
    {"overflow", &AttentionProblem::overflow, 0},
    {"junk", &AttentionProblem::junk, 0},
    {"threads", &AttentionProblem::threads, 1},
    {"tokens", &AttentionProblem::tokens, 1},
    {"block_size", &AttentionProblem::block_size, 0},
};

/// "seed=3 T=5 causal=1": the fields that are not simplest.
inline std::string text_of(const AttentionProblem& problem) {
  std::string text = "seed=" + std::to_string(problem.seed);
  for (const ProblemField& field : kProblemFields) {
    if (problem.*field.value == field.simplest) continue;
    text += std::string(" ") + field.name + "=" + std::to_string(problem.*field.value);
  }
  return text;
}

/// Throws: std::invalid_argument naming any part that text_of() does not write.
inline AttentionProblem problem_of(const std::string& text) {
  AttentionProblem problem;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t sign = word.find('=');
    const std::string name = word.substr(0, sign);
    const auto* const field = std::find_if(std::begin(kProblemFields), std::end(kProblemFields),
                                           [&](const ProblemField& each) { return name == each.name; });
    if (sign == std::string::npos || (field == std::end(kProblemFields) && name != "seed"))
      throw std::invalid_argument("no number of an attention problem: " + word);
    problem.*(name == "seed" ? &AttentionProblem::seed : field->value) = std::stoll(word.substr(sign + 1));
  }
  return problem;
}

/// Any combination that is allowed. `is_long`: with keys for several blocks of the kernels.
inline AttentionProblem random_problem(Generator& random, bool is_long = false) {
  AttentionProblem p;
  p.seed = random.below(Index{1} << 30);
  const bool packed = once_in(3, random), small = !is_long && !once_in(8, random);
  const auto length = [&] {
    return small ? any_of({1, 2, 5, 31, 32, 33, 40}, random) : any_of({64, 65, 127, 128, 129, 130}, random);
  };
  p.batch = packed || !small ? 1 : random.below(3) + 1;
  p.groups = random.below(3) + 1, p.repeats = random.below(3) + 1;
  p.queries = length();
  p.keys = is_long ? any_of({257, 600}, random) : once_in(2, random) ? p.queries : length();
  const bool wide = once_in(8, random);
  const auto width = [&] {
    return wide ? any_of({31, 64, 80, 128, 129, 256, 300}, random) : any_of({1, 3, 8, 16, 17, 33}, random);
  };
  p.key_width = width(), p.value_width = width();
  if (wide) p.batch = 1, p.queries = std::min<Index>(p.queries, 70), p.keys = std::min<Index>(p.keys, 131);
  if (packed) p.sequences = random.below(4) + 1, p.own_keys = random.below(2);
  p.causal = random.below(2), p.top_left = once_in(3, random), p.prefix = once_in(3, random);
  const auto reach = [&] {  // often to a border of the kernels' tiles, or one from it
    return once_in(2, random) ? any_of({0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}, random)
                              : random.below(p.keys + 2);
  };
  if (once_in(3, random)) p.before = reach();
  if (once_in(3, random)) p.after = reach();
  p.lengths = once_in(3, random), p.key_mask = once_in(3, random), p.query_mask = once_in(3, random);
  p.mask = random.below(3), p.repeated = random.below(32) & random.below(32);
  if (once_in(3, random)) p.scale = 30;
  if (once_in(3, random)) p.dropout = 25;
  p.junk = random.below(6), p.overflow = once_in(4, random);
  p.threads = random.below(3) + 1, p.tokens = random.below(7) + 1, p.block_size = random.below(6);
  const bool modified = once_in(2, random);
  if (modified) {
    p.function = random.below(static_cast<Index>(ScoreFunction::count)), p.shared = random.below(4);
    p.relative = random.below(2), p.sigmoid = once_in(3, random);
    p.sinks = p.sigmoid == 0 && once_in(2, random);
  }
  return p;
}

/// Inputs and options.
struct AttentionCase {
  AttentionInputs in;
  AttentionOptions options;
};

/// Each part is drawn from a stream of its own, so that it does not change when another part is removed.
inline AttentionCase case_of(const AttentionProblem& p) {
  std::uint64_t part = 0;
  const auto stream = [&] { return Generator(static_cast<std::uint64_t>(p.seed), part++); };
  Generator of_inputs = stream(), of_queries = stream(), of_keys = stream(), of_prefixes = stream(),
            of_lengths = stream(), of_key_mask = stream(), of_query_mask = stream(), of_mask = stream(),
            of_parameter = stream(), of_relative = stream(), of_sinks = stream();
  const bool packed = p.sequences > 0;
  const Index B = packed ? 1 : p.batch, T = p.queries, S = p.keys, H = p.groups * p.repeats;
  AttentionCase c{random_inputs(B, T, S, H, p.groups, p.key_width, p.value_width, of_inputs), {}};
  AttentionOptions& options = c.options;
  const Index N = packed ? p.sequences : B;
  if (packed) {
    options.query_starts = random_starts(N, T, of_queries);
    if (S != T || p.own_keys != 0) options.key_starts = random_starts(N, S, of_keys);
  }
  options.causal = p.causal != 0;
  if (p.top_left != 0) options.alignment = CausalAlignment::top_left;
  if (p.prefix != 0) options.prefix_lengths = random_ids({N}, S + 2, of_prefixes);
  options.window_before = p.before, options.window_after = p.after;
  if (p.lengths != 0) {
    const Tensor starts = options.key_starts.defined() ? options.key_starts : options.query_starts;
    options.key_lengths = random_ids({N}, S + 1, of_lengths);
    for (Index i = 0; packed && i < N; ++i) {
      const auto keys = static_cast<std::int32_t>(starts.at(i + 1) - starts.at(i));
      options.key_lengths.data<std::int32_t>()[i] %= keys + 1;
    }
  }
  if (p.key_mask != 0) options.key_mask = random_row_mask({B, S}, of_key_mask);
  if (p.query_mask != 0) options.query_mask = random_row_mask({B, T}, of_query_mask);
  if (p.mask != 0) options.mask = random_pair_mask({B, H, T, S}, p.mask == 2, p.repeated, of_mask);
  options.score_function = static_cast<ScoreFunction>(p.function);
  if (p.function != 0) {
    const Tensor normal = random_normal({p.shared % 2 != 0 ? 1 : H}, of_parameter);
    options.score_parameter = filled(normal.shape(), [&](Index i) { return 0.5 + std::fabs(normal.at(i)); });
  }
  const Index reach = std::max(T, S) - 1 + p.seed % 3;
  if (p.relative != 0)
    options.relative_bias = random_normal({p.shared / 2 != 0 ? 1 : H, 2 * reach + 1}, of_relative);
  if (p.sinks != 0 && p.sigmoid == 0) options.sinks = random_normal({H}, of_sinks);
  if (p.sigmoid != 0) options.weighting = AttentionWeighting::sigmoid;
  options.scale = static_cast<double>(p.scale) / 100;
  options.dropout = static_cast<double>(p.dropout) / 100;
  if (p.dropout != 0) options.dropout_key = {7, static_cast<std::uint64_t>(p.seed % 100), 3};
  return c;
}

}  // namespace tapeformer
