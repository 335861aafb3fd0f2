#include <tapeformer/autograd/kernels/cuda/attention/mma/mma.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// A block's division of work: each warp has kFragments times 16 queries and the sums of their outputs in
/// registers, so wide heads have fewer per warp. Narrow heads keep the queries in registers, too.
template <class T, int kWidthOfHeads, MmaOptions kOptions>
struct ForwardTiles {
  using Number = T;
  static constexpr int kWidth = kWidthOfHeads;  // of keys and values; narrower ones are filled with zeros
  static constexpr bool kMasks = kOptions != MmaOptions::none, kModifies = kOptions == MmaOptions::modifiers;
  static constexpr bool kTakesSinks = kOptions != MmaOptions::masks;  // one more value there would be spilled
  static constexpr bool kHoldsQueries = kWidth * sizeof(T) <= 128;
  static constexpr int kFragments = kWidth * sizeof(T) > 256 || (kMasks && kWidth > 32) ? 1 : 2;
  static constexpr int kWarps = kWidth > 128 ? 8 : 4;
  static constexpr int kThreads = kWarps * kWarp, kQueries = kWarps * kFragments * 16;
  static constexpr int kRowsOfTiles = kQueries + 2 * kKeyTile + 1;  // the last is zero
  static constexpr int kRowSize = kPitch<kWidth, T>;
  static constexpr std::size_t kBytes = sizeof(T) * kRowsOfTiles * kRowSize;
};

/// A warp's part of the scores and of the outputs, and its rows: row g of fragment i is [i][0], row g + 8 is
/// [i][1]. Totals are of one lane's keys until the end.
template <class Tiles>
struct ForwardState {
  float scores[Tiles::kFragments][kKeyFragments][4];
  float sums[Tiles::kFragments][Tiles::kWidth / 8][4];
  float largest[Tiles::kFragments][2], totals[Tiles::kFragments][2];
};

template <class Tiles>
using QueryFragments = unsigned[Tiles::kWidth / kTerms<typename Tiles::Number>][Tiles::kFragments][4];

/// scores = queries keys^T
template <class Tiles, class T>
__device__ void multiply_keys(const T* query_tile, const QueryFragments<Tiles>& held, const T* key_tile,
                              ForwardState<Tiles>& state) {
  const T* const keys = rows_by_8(key_tile, Tiles::kRowSize);
  const T* const queries = rows_by_16(query_tile, Tiles::kRowSize);
  if constexpr (Tiles::kHoldsQueries) {
    multiply_moving<Tiles::kWidth>(
        state.scores, keys, [&](int at, const auto&) -> const auto& { return held[at / kTerms<T>]; });
  } else {
    multiply_rows<Tiles::kWidth>(state.scores, queries, keys);
  }
}

/// The rounded weights of a tile of keys, as a of products.
template <class Tiles>
using Weights = unsigned[Tiles::kFragments][kKeyTile / kTerms<typename Tiles::Number>][4];

/// Replaces scores, times `factor`, by their exponentials for the largest score so far; earlier sums shrink.
/// With masks, only weights with a bit in `kept` are multiplied. One fragment after the other, to use fewer
/// registers.
/// Source:  Milakov and Gimelshein 2018, arXiv:1805.02867
template <class Tiles>
__device__ void exponentiate(float factor, std::uint64_t kept, ForwardState<Tiles>& state,
                             Weights<Tiles>& weights) {
#pragma unroll
  for (int i = 0; i < Tiles::kFragments; ++i) {
    auto& scores = state.scores[i];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float most = state.largest[i][h];
#pragma unroll
      for (int j = 0; j < kKeyFragments; ++j) most = max(most, max(scores[j][2 * h], scores[j][2 * h + 1]));
      most = warp_largest<4>(most);
      const float shift = most == kNothing ? 0.0f : most * factor;
      const float shrink = exponential<Tiles::kMasks>(state.largest[i][h] * factor - shift);
      float total = state.totals[i][h] * shrink;
#pragma unroll
      for (int j = 0; j < kKeyFragments; ++j) {
#pragma unroll
        for (int c = 2 * h; c < 2 * h + 2; ++c) {
          total += scores[j][c] = exponential<Tiles::kMasks>(scores[j][c] * factor - shift);
          if (Tiles::kMasks && (kept >> (32 * i + 16 * h + 2 * j + c % 2) & 1u) == 0) scores[j][c] = 0;
        }
        put_pair<typename Tiles::Number>(weights[i], j, h, scores[j][2 * h], scores[j][2 * h + 1]);
      }
      state.largest[i][h] = most, state.totals[i][h] = total;
#pragma unroll
      for (int j = 0; j < Tiles::kWidth / 8; ++j)
        state.sums[i][j][2 * h] *= shrink, state.sums[i][j][2 * h + 1] *= shrink;
    }
  }
}

/// Replaces scores in nats by their sigmoids, as exponentiate() does by exponentials.
template <class Tiles>
__device__ void find_sigmoids(std::uint64_t kept, ForwardState<Tiles>& state, Weights<Tiles>& weights) {
#pragma unroll
  for (int n = 0; n < Tiles::kFragments * kKeyFragments * 2; ++n) {
    const int i = n / (2 * kKeyFragments), j = n / 2 % kKeyFragments, h = n % 2;
    float w[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float score = state.scores[i][j][2 * h + c];
      state.largest[i][h] = max(state.largest[i][h], score);
      w[c] = (kept >> (32 * i + 16 * h + 2 * j + c) & 1u) != 0 ? sigmoid_approx(score) : 0.0f;
    }
    put_pair<typename Tiles::Number>(weights[i], j, h, w[0], w[1]);
  }
}

/// sums += weights values. Values without a bit in seen_by_warp() may be infinite or NaN, and count as zero:
/// lanes point at a row of zeros instead.
template <class Tiles>
__device__ void multiply_values(const BFloat16* value_tile, unsigned seen, const Weights<Tiles>& weights,
                                ForwardState<Tiles>& state) {
  constexpr int kRowSize = Tiles::kRowSize;
  const BFloat16* const values = rows_by_16(value_tile, kRowSize);
  const BFloat16* const zeros = value_tile + kKeyTile * kRowSize + own_lane() / 16 * 8;
  // Row lane % 16 of each 16 is the key of another lane's t, whose bit is needed.
  const int row = own_lane() % 16;
  const unsigned rows = __shfl_sync(kAllLanes, seen, row % 8 / 2) >> (row / 8 * 2 + row % 2);
#pragma unroll
  for (int k = 0; k < kKeyTile / 16; ++k) {
    const BFloat16* const of_k = (rows >> 4 * k & 1u) != 0 ? values + k * 16 * kRowSize : zeros;
#pragma unroll
    for (int j = 0; j < Tiles::kWidth / 8; j += 2) {
      unsigned b[4];
      load_matrix_x4_transposed(b, of_k + j * 8);
#pragma unroll
      for (int i = 0; i < Tiles::kFragments; ++i) {
        mma_bf16(state.sums[i][j], weights[i][k], b[0], b[1]);
        mma_bf16(state.sums[i][j + 1], weights[i][k], b[2], b[3]);
      }
    }
  }
}

template <class Tiles>
__device__ void multiply_values(const float* value_tile, unsigned seen, const Weights<Tiles>& weights,
                                ForwardState<Tiles>& state) {
  constexpr int kRowSize = Tiles::kRowSize;
  const float* const values = value_tile + own_lane() % 4 * 2 * kRowSize + own_lane() / 4 * 4;
  const float* const zeros = value_tile + kKeyTile * kRowSize + own_lane() / 4 * 4;
#pragma unroll
  for (int k = 0; k < kKeyFragments; ++k) {
    const auto row = [&](int c) {
      return (seen >> (2 * k + c) & 1u) != 0 ? values + (k * 8 + c) * kRowSize : zeros;
    };
    add_rows_tf32(
        state.sums, [&](int i) -> const auto& { return weights[i][k]; }, row(0), row(1));
  }
}

/// Joins the sums of a row, and its sink if there are any, and writes y, through the warp's own rows of a
/// tile, and log_sum. Sigmoids have no sum: a row that sees a key counts as one of exp(0).
template <class Tiles, class T>
__device__ void write_outputs(const AttentionShape& s, int b, int head, int first, float factor,
                              const float* sinks, T* tile, ForwardState<Tiles>& state, T* y, float* log_sum) {
  constexpr int kRows = Tiles::kFragments * 16, kChunks = Tiles::kWidth / kPackSize<T>;
  const int g = own_lane() / 4, t = own_lane() % 4, width = static_cast<int>(s.value_width);
  __syncwarp();  // the warp's queries are no longer needed
#pragma unroll
  for (int i = 0; i < Tiles::kFragments; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const bool is_sigmoid = Tiles::kModifies && s.weighting == AttentionWeighting::sigmoid;
      float total = state.totals[i][h];
      if (is_sigmoid) total = state.largest[i][h] == kNothing ? 0.0f : 1.0f;
      total = warp_sum<4>(total);
      if (is_sigmoid) total = min(total, 1.0f);
      float most = is_sigmoid ? 0.0f : state.largest[i][h] * factor,
            kept = s.drops ? static_cast<float>(s.kept_scale) : 1.0f;
      if (Tiles::kTakesSinks && sinks != nullptr)
        kept *= add_sink(sinks[head] / kUnit<Tiles::kMasks>, most, total, exponential<Tiles::kMasks>);
      const int row = 16 * i + 8 * h + g;
      if (t == 0 && first + row < s.queries)
        log_sum[(Index{b} * s.heads + head) * s.queries + first + row] =
            most * kUnit<Tiles::kMasks> + logf(total);
      const float scale = total == 0.0f ? 0.0f : kept / total;
      for_each_pack_of_sums<T>(state.sums[i], h, scale, Tiles::kWidth, [&](int column, const auto& values) {
        store_pack(tile + row * Tiles::kRowSize + column, narrowed<T>(values));
      });
    }
  }
  __syncwarp();
  for (int i = own_lane(); i < kRows * kChunks; i += kWarp) {
    const int row = i / kChunks, at = i % kChunks * kPackSize<T>;
    if (first + row >= s.queries || at >= width) continue;
    const Index to = ((Index{b} * s.queries + first + row) * s.heads + head) * width + at;
    *reinterpret_cast<uint4*>(y + to) = *reinterpret_cast<const uint4*>(tile + row * Tiles::kRowSize + at);
  }
}

/// Pointers of AttentionOperands.
struct MmaModifiers {
  const float *relative, *parameter, *sinks;
};

/// A block's queries.
struct QueryPlace {
  int b, head, first;
};
template <class Tiles>
__device__ QueryPlace place_of_queries(const AttentionShape& s) {
  const unsigned heads = static_cast<unsigned>(s.heads), batch = static_cast<unsigned>(s.batch);
  const unsigned tiles = (static_cast<unsigned>(s.queries) + Tiles::kQueries - 1) / Tiles::kQueries;
  const unsigned block = anew(blockIdx.x), unit = block / heads;
  return {static_cast<int>(unit % batch), static_cast<int>(block % heads),
          static_cast<int>((tiles - 1 - unit / batch) * Tiles::kQueries)};
}

/// A block has a tile of queries of one head, and loops over the keys. While the scores of a tile of keys are
/// computed its values are loaded, and then the next keys. Blocks with the last queries come first: with a
/// causal mask they have the most work. `scale` makes scores of products, in their unit.
/// Source:  Dao 2023, arXiv:2307.08691, algorithm 1
template <class Tiles, class T = typename Tiles::Number>
__global__ void __launch_bounds__(Tiles::kThreads)
    attention_forward_mma_kernel(AttentionShape s, const T* query, const T* key, const T* value,
                                 const float* bias, MmaModifiers modifiers, T* y, float* log_sum,
                                 float scale) {
  constexpr int kWidth = Tiles::kWidth, kFragments = Tiles::kFragments, kRows = 2 * kFragments;
  constexpr int kRowSize = Tiles::kRowSize;
  T* const query_tile = dynamic_shared<T>();
  T* const key_tile = query_tile + Tiles::kQueries * kRowSize;
  T* const value_tile = key_tile + kKeyTile * kRowSize;
  for (int i = static_cast<int>(threadIdx.x); i < kRowSize; i += Tiles::kThreads)
    value_tile[kKeyTile * kRowSize + i] = T{};
  const QueryPlace own = place_of_queries<Tiles>(s);
  const int b = own.b, head = own.head, first = own.first;
  const int group = head / static_cast<int>(s.heads / s.groups);
  const int own_first = first + own_warp() * kFragments * 16;  // of the warp
  const int queries = min(Tiles::kQueries, static_cast<int>(s.queries) - first);

  query += s.query.at(b, first, head);
  const int keys = static_cast<int>(s.keys), key_width = static_cast<int>(s.key_width),
            value_width = static_cast<int>(s.value_width);
  key += b * s.key.batch + group * s.key.head, value += b * s.value.batch + group * s.value.head;
  JointRange of_block, of_warp;
  for (int t = own_lane(); t < queries; t += kWarp) of_block.add(range_of(s, b, first + t));
  of_block.join();
  int at = of_block.from < of_block.to ? of_block.from / kKeyTile * kKeyTile : of_block.to;  // first key
  load_tile<Tiles::kQueries, kWidth, Tiles::kThreads>(query_tile, query, s.query.row, queries, key_width);
  const auto load_keys = [&](int first_key) {
    load_tile<kKeyTile, kWidth, Tiles::kThreads>(key_tile, key + first_key * s.key.row, s.key.row,
                                                 keys - first_key, key_width);
  };
  load_keys(at);
  copy_async_commit();

  ForwardState<Tiles> state;
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int t = own_first + 16 * i + 8 * h + own_lane() / 4;
      if (t < s.queries) of_warp.add(range_of(s, b, t));
      state.largest[i][h] = kNothing, state.totals[i][h] = 0;
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) state.sums[i][j][2 * h] = state.sums[i][j][2 * h + 1] = 0;
    }
  }
  of_warp.join();
  const bool has_masks = Tiles::kMasks && (s.key_mask != nullptr || s.mask != nullptr || bias != nullptr);
  const float factor = Tiles::kMasks ? 1.0f : scale;
  T* const own_queries = query_tile + own_warp() * kFragments * 16 * kRowSize;
  QueryFragments<Tiles> held;
  copy_async_wait<0>();
  round_tile<Tiles::kQueries, kWidth, Tiles::kThreads>(query_tile);
  __syncthreads();
  if constexpr (Tiles::kHoldsQueries) {
#pragma unroll
    for (int k = 0; k < kWidth / kTerms<T>; ++k)
      load_rows_of_a<kWidth>(held[k], rows_by_16(own_queries, kRowSize) + k * kTerms<T>);
  }

  for (; at < of_block.to; at += kKeyTile) {
    copy_async_wait<0>();
    round_tile<kKeyTile, kWidth, Tiles::kThreads>(key_tile);
    __syncthreads();  // the keys are loaded, and the last values have been read
    load_tile<kKeyTile, kWidth, Tiles::kThreads>(value_tile, value + at * s.value.row, s.value.row, keys - at,
                                                 value_width);
    copy_async_commit();
    const bool sees = of_warp.sees(at, at + kKeyTile);
    std::uint64_t kept = 0;  // bits_of_rows, while there are no scores in registers
    if (Tiles::kMasks && sees && s.drops) {
      const PhiloxStream random = s.dropout.settled();
      kept = bits_of_rows<kRows>(own_first, [&](int t) {
        return kept_bits(random, s.dropped, ((Index{b} * s.heads + head) * s.queries + t) * s.keys + at);
      });
    }
    if (sees) multiply_keys<Tiles>(own_queries, held, key_tile, state);
    copy_async_wait<0>();
    round_tile<kKeyTile, kWidth, Tiles::kThreads>(value_tile);
    __syncthreads();  // the values are loaded, and the keys have been read
    if (at + kKeyTile < of_block.to) load_keys(at + kKeyTile);
    copy_async_commit();
    if (!sees) continue;

    if constexpr (Tiles::kModifies) {
      const float parameter = parameter_of(s, modifiers.parameter, head);
      apply_function(s, parameter, static_cast<float>(s.scale), state.scores);
    } else if constexpr (Tiles::kMasks) {
      scale_all(state.scores, scale);
    }
    const auto score = [&](int row, int j, int c) -> float& {
      return state.scores[row / 2][j][row % 2 * 2 + c];
    };
    unsigned seen = kAllSeen;
    const bool is_whole = !has_masks && of_warp.sees_all(at, at + kKeyTile) &&
                          (!Tiles::kModifies || own_first + 8 * kRows <= s.queries);  // all have positions
    std::uint64_t bits = ~std::uint64_t{0};
    if (!is_whole) {
      const QueryPlace place = place_of_queries<Tiles>(s);  // again, not kept in registers
      bits = bits_of_rows<kRows>(place.first + own_warp() * kFragments * 16, [&](int t) {
        const unsigned in_range = bits_in_range(range_of(s, place.b, t), at);
        return has_masks ? bits_by_masks(s, b, head, t, at, in_range) : in_range;
      });
    }
    if (Tiles::kModifies && modifiers.relative != nullptr)
      add_relative_biases<kRows>(s, modifiers.relative, b, head, own_first, at, bits, score);
    if (Tiles::kMasks && bias != nullptr)
      bits = add_biases<kRows>(s, bias, b, head, own_first, at, bits, score);
    if (!is_whole) {
      for_each_without<kRows>(bits, [&](int row, int j, int c) { score(row, j, c) = kNothing; });
      seen = seen_by_warp(bits);
    }
    Weights<Tiles> weights;
    if (!s.drops) kept = ~std::uint64_t{0};
    if (Tiles::kModifies && s.weighting == AttentionWeighting::sigmoid)
      find_sigmoids<Tiles>(kept, state, weights);
    else
      exponentiate<Tiles>(factor, kept, state, weights);
    multiply_values<Tiles>(value_tile, seen, weights, state);
  }
  copy_async_wait<0>();
  const QueryPlace place = place_of_queries<Tiles>(s);
  write_outputs(s, place.b, place.head, place.first + own_warp() * kFragments * 16, factor, modifiers.sinks,
                own_queries, state, y, log_sum);
}

template <class Tiles, class T>
bool run(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x, T* y, float* log_sum) {
  if (Tiles::kBytes > shared_room(on)) return false;
  const Index blocks = s.batch * s.heads * ((s.queries + Tiles::kQueries - 1) / Tiles::kQueries);
  launch(on, "attention_forward_mma", attention_forward_mma_kernel<Tiles>,
         {blocks, Tiles::kThreads, Tiles::kBytes}, s, x.query, x.key, x.value, x.bias,
         MmaModifiers{x.relative, x.parameter, x.sinks}, y, log_sum,
         static_cast<float>(s.scale) * (Tiles::kMasks ? 1.0f : kLog2E));
  return true;
}

}  // namespace

template <class T>
bool tensor_core_attention_forward(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x, T* y,
                                   float* log_sum) {
  if (std::max(s.key_width, s.value_width) > kWidestHead<T> ||
      !has_aligned_rows(x.query, s.query, s.key_width) || !has_aligned_rows(x.key, s.key, s.key_width) ||
      !has_aligned_rows(x.value, s.value, s.value_width) || reinterpret_cast<std::uintptr_t>(y) % 16 != 0)
    return false;
  MmaOptions options =
      keeps_order(s.scale) ? options_of(s, x) : std::max(options_of(s, x), MmaOptions::masks);
  if (options == MmaOptions::masks && x.sinks != nullptr) options = MmaOptions::modifiers;
  bool is_done = false;
  with_width<T>(s, [&](auto width) {
    with_options(options, [&](auto with) {
      is_done = run<ForwardTiles<T, decltype(width)::value, decltype(with)::value>>(on, s, x, y, log_sum);
    });
  });
  return is_done;
}

template decltype(tensor_core_attention_forward<BFloat16>) tensor_core_attention_forward<BFloat16>;
template decltype(tensor_core_attention_forward<float>) tensor_core_attention_forward<float>;

}  // namespace tapeformer::kernels
