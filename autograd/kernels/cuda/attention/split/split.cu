#include <tapeformer/autograd/kernels/cuda/attention/split/tile.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

constexpr Index kMostQueries = 16, kFewestKeys = 129, kMostWidth = 640;
constexpr Index kEnoughBlocks = 528;  // four for each SM of a large GPU; the same everywhere, for equal bits
// The limits of a block's shared memory, for tiles and for the rest; a GPU of compute capability 8.0 has
// both.
constexpr std::size_t kMostShared = 152 * 1024, kOtherShared = 10 * 1024;

/// The sums over a part of the keys: outputs before the division by the sum of the weights, the largest
/// score, and the sum of the weights.
template <class W>
struct SplitResults {
  W *sums, *largest, *totals;  // [part, B, H, T, E] and [part, B, H, T]
};

template <class T, int kColumns, bool kModifies>
__global__ void __launch_bounds__(kSplitThreads)
    attention_split_kernel(AttentionShape s, SplitPlan plan, AttentionOperands<T> in,
                           SplitResults<Wide<T>> results, T* y, Wide<T>* log_sum) {
  using W = Wide<T>;
  __shared__ W scores[kSplitRows * kScorePitch];
  __shared__ uint4 bf16_space[kUsesTensorCores<T> ? kSplitRows * kWeightPitch / 8 : 1];
  BFloat16* const bf16_weights = reinterpret_cast<BFloat16*>(bf16_space);
  __shared__ W factors[kSplitRows];
  __shared__ unsigned seen_by[kSplitWarps][kKeyTile / 8], seen[kKeyTile / 8];
  T* const query_tile = dynamic_shared<T>();
  const int key_pitch = pitch_of(plan.key_chunks) * kPackSize<T>;
  const int value_pitch = plan.values_are_keys ? key_pitch : pitch_of(plan.value_chunks) * kPackSize<T>;
  const int stage_size = kKeyTile * (key_pitch + (plan.values_are_keys ? 0 : value_pitch));
  T* const stages = query_tile + kSplitRows * key_pitch;

  const int sharing = static_cast<int>(s.heads / s.groups);
  const int part = static_cast<int>(blockIdx.x) % plan.parts,
            unit = static_cast<int>(blockIdx.x) / plan.parts;
  const int first_row = unit % plan.row_tiles * kSplitRows, place = unit / plan.row_tiles;
  const int group = place % static_cast<int>(s.groups), b = place / static_cast<int>(s.groups);
  const int rows = min(kSplitRows, static_cast<int>(s.queries) * sharing - first_row);
  const T *const query = in.query + b * s.query.batch, *const key = in.key + s.key.at(b, 0, group),
                 *const value = in.value + s.value.at(b, 0, group);
  const auto query_of = [&](int row) { return (first_row + row) / sharing; };
  const auto head_of = [&](int row) { return group * sharing + (first_row + row) % sharing; };

  // kRowThreads neighbouring threads compute the softmax of a row.
  const int row = static_cast<int>(threadIdx.x) / kRowThreads,
            own_key = static_cast<int>(threadIdx.x) % kRowThreads * kOwnKeys;
  const SeenKeys range = row < rows ? range_of(s, b, query_of(row)) : SeenKeys{};
  const bool sees = range.from < range.to;
  const int from = block_reduce(sees ? range.from : plan.part_keys * plan.parts, plan.part_keys * plan.parts,
                                [](int x, int other) { return min(x, other); });
  const int to = block_reduce(sees ? range.to : 0, 0, [](int x, int other) { return max(x, other); });
  const int begin = max(part * plan.part_keys, from / kKeyTile * kKeyTile),
            end = min((part + 1) * plan.part_keys, to);

  const auto load_tile = [&](int first, int stage) {
    const int keys = static_cast<int>(s.keys);
    T* const tile = stages + stage * stage_size;
    load_rows(tile, plan.key_chunks, kKeyTile, keys - first, s.key_width,
              [&](int i) { return key + (first + i) * s.key.row; });
    if (plan.values_are_keys) return;
    load_rows(tile + kKeyTile * key_pitch, plan.value_chunks, kKeyTile, keys - first, s.value_width,
              [&](int i) { return value + (first + i) * s.value.row; });
  };
  if (begin < end) {
    load_rows(query_tile, plan.key_chunks, kSplitRows, rows, s.key_width,
              [&](int i) { return query + query_of(i) * s.query.row + head_of(i) * s.query.head; });
    load_tile(begin, 0);
  }
  copy_async_commit();
  SplitSums<T, kColumns> sums = {};
  W largest = kMinusInfinity<W>, total = W(0);
  const W parameter = kModifies && row < rows ? parameter_of(s, in.parameter, head_of(row)) : W(0);
  int stage = 0;
  for (int at = begin; at < end; at += kKeyTile) {
    const bool has_next = at + kKeyTile < end;
    if (plan.stages == 2) {
      if (has_next) load_tile(at + kKeyTile, 1 - stage);
      copy_async_commit();
      copy_async_wait<1>();
    } else {
      copy_async_wait<0>();
    }
    __syncthreads();
    const T *const keys = stages + stage * stage_size, *const values = plan.values_are_keys
                                                                           ? keys
                                                                           : keys + kKeyTile * key_pitch;
    find_scores<T>(query_tile, keys, plan.key_chunks, rows, static_cast<W>(s.scale), scores);
    __syncthreads();

    unsigned visible = 0;
    W own[kOwnKeys], most = largest;
    for (int i = 0; i < kOwnKeys; ++i) {
      const int at_key = at + own_key + i;
      const bool is_in_range = at_key >= range.from && at_key < range.to;
      W score = is_in_range ? scores[row * kScorePitch + own_key + i] : W(0);
      if constexpr (kModifies) {
        with_function(s.function, [&](auto function) { score = function.value(score, parameter); });
        if (in.relative != nullptr && is_in_range)
          score += relative_row(s, in.relative, b, head_of(row), query_of(row))[at_key];
      }
      const bool is_visible =
          is_in_range && may_see(s, in.bias, b, head_of(row), query_of(row), at_key, score);
      own[i] = is_visible ? score : kMinusInfinity<W>;
      visible |= (is_visible ? 1u : 0u) << i;
      most = max(most, own[i]);
    }
    most = warp_largest<kRowThreads>(most);
    const W shift = most == kMinusInfinity<W> ? W(0) : most, shrink = exp(largest - shift);
    W sum = W(0);
    for (int i = 0; i < kOwnKeys; ++i) {
      const W weight = exp(own[i] - shift);
      sum += weight;
      if constexpr (kUsesTensorCores<T>)
        bf16_weights[row * kWeightPitch + own_key + i] = T(weight);
      else
        scores[row * kScorePitch + own_key + i] = weight;
    }
    total = total * shrink + warp_sum<kRowThreads>(sum);
    largest = most;
    if (own_key == 0) factors[row] = shrink;
    for (int offset = kRowThreads; offset < kWarp; offset *= 2)
      visible |= __shfl_xor_sync(kAllLanes, visible, offset);
    if (own_lane() < kRowThreads) seen_by[own_warp()][own_lane()] = visible;
    __syncthreads();
    if (threadIdx.x < kKeyTile / 8) {
      unsigned bits = 0;
      for (int warp = 0; warp < kSplitWarps; ++warp) bits |= seen_by[warp][threadIdx.x];
      seen[threadIdx.x] = bits;
    }
    each_sum(sums, [&](W& x, int of_row, int) { x *= factors[of_row]; });
    __syncthreads();
    if constexpr (kUsesTensorCores<T>)
      add_values(bf16_weights, values, plan.value_chunks, value_pitch, rows, seen, sums);
    else
      add_values(scores, values, plan.value_chunks, value_pitch, rows, seen, sums);
    __syncthreads();
    if (plan.stages == 2) {
      stage = 1 - stage;
    } else {
      if (has_next) load_tile(at + kKeyTile, 0);
      copy_async_commit();
    }
  }
  copy_async_wait<0>();

  const Index all = s.batch * s.heads * s.queries;
  const auto row_at = [&](int i) { return (Index{b} * s.heads + head_of(i)) * s.queries + query_of(i); };
  W kept = W(1);
  if (row < rows && own_key == 0) {
    if (kModifies && plan.parts == 1 && in.sinks != nullptr)
      kept = add_sink(in.sinks[head_of(row)], largest, total, [](W x) { return exp(x); });
    if (plan.parts > 1) {
      results.largest[part * all + row_at(row)] = largest, results.totals[part * all + row_at(row)] = total;
    } else {
      log_sum[row_at(row)] = largest + log(total);
    }
  }
  if (own_key == 0) factors[row] = plan.parts > 1 ? W(1) : total == W(0) ? W(0) : kept / total;
  __syncthreads();
  each_sum(sums, [&](W& x, int of_row, int column) {
    if (of_row >= rows || column >= s.value_width) return;
    const W sum = x * factors[of_row];
    if (plan.parts > 1) {
      results.sums[(part * all + row_at(of_row)) * s.value_width + column] = sum;
    } else {
      y[((Index{b} * s.queries + query_of(of_row)) * s.heads + head_of(of_row)) * s.value_width + column] =
          static_cast<T>(sum);
    }
  });
}

/// Joins the results of all parts in order. One block per row of the scores.
template <class T>
__global__ void __launch_bounds__(kSplitThreads)
    attention_combine_kernel(AttentionShape s, int parts, SplitResults<Wide<T>> results, const Wide<T>* sinks,
                             T* y, Wide<T>* log_sum) {
  using W = Wide<T>;
  const Index all = s.batch * s.heads * s.queries, row = blockIdx.x, width = s.value_width;
  const Index t = row % s.queries, head = row / s.queries % s.heads, b = row / s.queries / s.heads;
  W most = kMinusInfinity<W>, total = W(0);
  for (int part = 0; part < parts; ++part) most = max(most, results.largest[part * all + row]);
  const W shift = most == kMinusInfinity<W> ? W(0) : most;
  for (int part = 0; part < parts; ++part)
    total += results.totals[part * all + row] * exp(results.largest[part * all + row] - shift);
  W kept = W(1);
  if (sinks != nullptr) kept = add_sink(sinks[head], most, total, [](W x) { return exp(x); });
  for (Index at = threadIdx.x; at < width; at += kSplitThreads) {
    W sum = W(0);
    for (int part = 0; part < parts; ++part)
      sum += results.sums[(part * all + row) * width + at] * exp(results.largest[part * all + row] - shift);
    y[((b * s.queries + t) * s.heads + head) * width + at] =
        static_cast<T>(total == W(0) ? W(0) : kept * sum / total);
  }
  if (threadIdx.x == 0) log_sum[row] = most + log(total);
}

template <class T, int kColumns>
void run(Cuda on, const AttentionShape& s, const SplitPlan& plan, Index units, std::size_t bytes,
         const AttentionOperands<T>& x, T* y, Wide<T>* log_sum) {
  using W = Wide<T>;
  const Index rows = s.batch * s.heads * s.queries, parts = plan.parts > 1 ? plan.parts : 0;
  const Scratch<W> sums(on, parts * rows * s.value_width), statistics(on, 2 * parts * rows);
  const SplitResults<W> results{sums.data(), statistics.data(), statistics.data() + parts * rows};
  const auto kernel =
      modifies(s, x) ? attention_split_kernel<T, kColumns, true> : attention_split_kernel<T, kColumns, false>;
  launch(on, "attention_split", kernel, {units * plan.parts, kSplitThreads, bytes}, s, plan, x, results, y,
         log_sum);
  if (parts == 0) return;
  launch(on, "attention_combine", attention_combine_kernel<T>, {rows, kSplitThreads}, s, plan.parts, results,
         x.sinks, y, log_sum);
}

bool same(const HeadStrides& a, const HeadStrides& b) {
  return a.batch == b.batch && a.row == b.row && a.head == b.head;
}

}  // namespace

template <class T>
bool split_attention_forward(Cuda on, const AttentionShape& s, const AttentionOperands<T>& x, T* y,
                             Wide<T>* log_sum) {
  if (s.queries > kMostQueries || s.keys < kFewestKeys || s.drops) return false;
  if (s.weighting != AttentionWeighting::softmax) return false;
  if (std::max(s.key_width, s.value_width) > kMostWidth || !has_aligned_rows(x.query, s.query, s.key_width) ||
      !has_aligned_rows(x.key, s.key, s.key_width) || !has_aligned_rows(x.value, s.value, s.value_width))
    return false;
  const int in_fragment = kUsesTensorCores<T> ? 2 : 1;
  const auto chunks_of = [&](Index width) {
    return static_cast<int>(tiles_of(width, kPackSize<T> * in_fragment)) * in_fragment;
  };
  SplitPlan plan;
  plan.key_chunks = chunks_of(s.key_width), plan.value_chunks = chunks_of(s.value_width);
  plan.values_are_keys = x.value == x.key && same(s.value, s.key) && s.value_width <= s.key_width;
  const auto bytes_of = [&](int chunks, int rows) { return std::size_t{16} * (chunks | 1) * rows; };
  const std::size_t stage = bytes_of(plan.key_chunks, kKeyTile) +
                            (plan.values_are_keys ? 0 : bytes_of(plan.value_chunks, kKeyTile));
  const std::size_t fixed = bytes_of(plan.key_chunks, kSplitRows);
  plan.stages = fixed + 2 * stage <= kMostShared ? 2 : 1;
  const std::size_t bytes = fixed + static_cast<std::size_t>(plan.stages) * stage;
  if (bytes > kMostShared || bytes + kOtherShared > shared_room(on)) return false;
  plan.row_tiles = static_cast<int>(tiles_of(s.queries * (s.heads / s.groups), kSplitRows));
  const Index units = s.batch * s.groups * plan.row_tiles, tiles = tiles_of(s.keys, kKeyTile);
  const Index part_tiles = tiles_of(tiles, tiles_of(kEnoughBlocks, std::max(units, Index{1})));
  plan.part_keys = static_cast<int>(part_tiles) * kKeyTile;
  plan.parts = static_cast<int>(tiles_of(tiles, part_tiles));
  if (s.value_width <= 128) {
    run<T, 128>(on, s, plan, units, bytes, x, y, log_sum);
  } else {
    run<T, kMostWidth>(on, s, plan, units, bytes, x, y, log_sum);
  }
  return true;
}

template decltype(split_attention_forward<float>) split_attention_forward<float>;
template decltype(split_attention_forward<double>) split_attention_forward<double>;
template decltype(split_attention_forward<BFloat16>) split_attention_forward<BFloat16>;

}  // namespace tapeformer::kernels
