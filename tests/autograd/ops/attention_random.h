#pragma once

#include <tapeformer/tests/autograd/ops/attention_case.h>

#include <algorithm>

namespace tapeformer {

/// Random inputs and options in any combination that is allowed.
struct AttentionCase {
  AttentionInputs in;
  AttentionOptions options;
};

inline Index any_of(std::initializer_list<Index> choices, Generator& random) {
  return choices.begin()[random.below(static_cast<Index>(choices.size()))];
}

inline bool once_in(Index n, Generator& random) { return random.below(n) == 0; }

/// Starts of N sequences, some of them empty, that rise from 0 to `end`.
inline Tensor random_starts(Index N, Index end, Generator& random) {
  const Tensor starts = random_ids({N + 1}, end + 1, random);
  std::int32_t* start = starts.data<std::int32_t>();
  start[0] = 0, start[N] = static_cast<std::int32_t>(end);
  std::sort(start, start + N + 1);
  return starts;
}

/// bool or additive, broadcast along any of its axes, some rows and elements left out.
inline Tensor random_pair_mask(const Shape& scores, bool additive, Generator& random) {
  Shape shape = scores;
  for (int axis = 0; axis < 4; ++axis) {
    if (once_in(3, random)) shape.set(axis, 1);
  }
  if (shape[0] == 1 && once_in(2, random)) shape = {shape[1], shape[2], shape[3]};
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

/// A tenth of the cases on a GPU: emulated, plain operations take a hundred times as long.
inline int cases_here(int cases) { return default_device().is_cuda() ? cases / 10 : cases; }

/// `is_long`: with keys for several blocks of the kernels.
inline AttentionCase random_case(Generator& random, bool is_long = false) {
  const bool packed = once_in(3, random), small = !is_long && !once_in(8, random);
  const auto length = [&] {
    return small ? any_of({1, 2, 5, 31, 32, 33, 40}, random) : any_of({65, 130}, random);
  };
  const auto width = [&] { return any_of({1, 3, 8, 16, 17, 33}, random); };
  const Index B = packed ? 1 : small ? random.below(3) + 1 : 1, G = random.below(3) + 1;
  const Index H = G * (random.below(3) + 1), T = length();
  const Index S = is_long ? any_of({257, 600}, random) : once_in(2, random) ? T : length();
  AttentionCase result{random_inputs(B, T, S, H, G, width(), width(), random), {}};
  AttentionOptions& options = result.options;
  const Index N = packed ? random.below(4) + 1 : B;
  if (packed) {
    options.query_starts = random_starts(N, T, random);
    if (S != T || once_in(2, random)) options.key_starts = random_starts(N, S, random);
  }
  options.causal = once_in(2, random);
  if (once_in(3, random)) options.alignment = CausalAlignment::top_left;
  if (once_in(3, random)) options.prefix_lengths = random_ids({N}, S + 2, random);
  if (once_in(3, random)) options.window_before = random.below(S + 2);
  if (once_in(3, random)) options.window_after = random.below(S + 2);
  if (once_in(3, random)) {
    const Tensor starts = options.key_starts.defined() ? options.key_starts : options.query_starts;
    options.key_lengths = random_ids({N}, S + 1, random);
    for (Index i = 0; packed && i < N; ++i) {
      const auto keys = static_cast<std::int32_t>(starts.at(i + 1) - starts.at(i));
      options.key_lengths.data<std::int32_t>()[i] %= keys + 1;
    }
  }
  if (once_in(3, random)) options.key_mask = random_row_mask({B, S}, random);
  if (once_in(3, random)) options.query_mask = random_row_mask({B, T}, random);
  const Index mask = random.below(3);
  if (mask > 0) options.mask = random_pair_mask({B, H, T, S}, mask == 1, random);
  if (once_in(3, random)) options.scale = 0.3;
  if (once_in(3, random)) {
    options.dropout = 0.25;
    options.dropout_key = {7, static_cast<std::uint64_t>(random.below(100)), 3};
  }
  return result;
}

inline std::string description(const AttentionCase& c) {
  const AttentionOptions& o = c.options;
  std::string text = c.in.query.describe() + " " + c.in.key.describe() + " " + c.in.value.describe();
  for (const auto& [name, x] : {std::pair<const char*, Tensor>{" mask=", o.mask},
                                {" key_mask=", o.key_mask},
                                {" query_mask=", o.query_mask},
                                {" prefix=", o.prefix_lengths},
                                {" lengths=", o.key_lengths},
                                {" query_starts=", o.query_starts},
                                {" key_starts=", o.key_starts}}) {
    if (x.defined()) text += name + x.describe();
  }
  return text + (o.causal ? " causal" : "") + (o.alignment == CausalAlignment::top_left ? " top_left" : "") +
         " window " + std::to_string(o.window_before) + " " + std::to_string(o.window_after) + " dropout " +
         std::to_string(o.dropout);
}

/// Per query [B, T, H], or per key [B, S, G]: does any pair that left_in() allows touch it?
inline std::vector<bool> touched(const AttentionCase& all, bool queries) {
  const AttentionCase c{all.in, moved(all.options, Device::cpu())};
  const Index T = c.in.T(), H = c.in.H(), S = c.in.S(), G = c.in.G();
  std::vector<bool> result(static_cast<std::size_t>(c.in.B() * (queries ? T * H : S * G)));
  for (Index row = 0; row < c.in.B() * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, t = row % T;
    for (Index s = 0; s < S; ++s) {
      if (!left_in(c.options, c.in, b, h, t, s)) continue;
      const Index at = queries ? (b * T + t) * H + h : (b * S + s) * G + h / (H / G);
      result[static_cast<std::size_t>(at)] = true;
    }
  }
  return result;
}

/// Copies of the inputs with junk in the rows that the masks leave out.
inline AttentionInputs spoiled(const AttentionCase& c, double junk) {
  const auto spoil = [&](const Tensor& x, bool queries) {
    const std::vector<bool> real = touched(c, queries);
    const Tensor here = x.to(Device::cpu());
    return filled(x.shape(),
                  [&](Index i) { return real[static_cast<std::size_t>(i / x.size(3))] ? here.at(i) : junk; });
  };
  return {spoil(c.in.query, true), spoil(c.in.key, false), spoil(c.in.value, false)};
}

/// The gradients of query, key and value are exactly zero in the rows that the masks leave out.
inline void check_untouched(const AttentionCase& c, const std::vector<Tensor>& gradients) {
  const std::vector<bool> queries = touched(c, true), keys = touched(c, false);
  for (std::size_t k = 0; k < 3; ++k) {
    const std::vector<bool>& real = k == 0 ? queries : keys;
    const Tensor dx = gradients[k].to(Device::cpu());
    for (Index i = 0; i < dx.elements(); ++i) {
      if (!real[static_cast<std::size_t>(i / dx.size(3))]) REQUIRE(dx.at(i) == 0);
    }
  }
}

}  // namespace tapeformer
