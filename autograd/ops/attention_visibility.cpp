#include <tapeformer/autograd/dispatch.h>
#include <tapeformer/autograd/ops/attention_visibility.h>
#include <tapeformer/autograd/ops/broadcast.h>

#include <algorithm>
#include <limits>

namespace tapeformer {
namespace {

/// One sequence: its rows among the B T queries, and its keys within those of its batch entry.
struct Sequence {
  Index row, queries, key, keys;
};

Sequence sequence_at(const AttentionMasks& masks, Index i, Index T, Index S) {
  if (!masks.query_starts.defined()) return {i * T, T, 0, S};
  const Tensor& key_starts = masks.key_starts.defined() ? masks.key_starts : masks.query_starts;
  const std::int32_t *query = masks.query_starts.data<std::int32_t>() + i,
                     *key = key_starts.data<std::int32_t>() + i;
  return {query[0], query[1] - query[0], key[0], key[1] - key[0]};
}

Index number_of_sequences(const AttentionMasks& masks, Index B) {
  return masks.query_starts.defined() ? masks.query_starts.elements() - 1 : B;
}

bool restricts(const AttentionMasks& masks) {
  return masks.causal || masks.window_before != kUnlimited || masks.window_after != kUnlimited ||
         masks.key_lengths.defined() || masks.query_mask.defined() || masks.query_starts.defined() ||
         masks.key_mask.defined();
}

/// Cuts ranges down to their first and last real key.
class RealKeys {
 public:
  explicit RealKeys(Index S) : next_(static_cast<std::size_t>(S + 1)), past_(next_) {}
  void look_at(const bool* real, Index S) {
    next_[static_cast<std::size_t>(S)] = static_cast<std::int32_t>(S);
    past_[0] = 0;
    for (Index s = S; s-- > 0;) {
      const auto i = static_cast<std::size_t>(s);
      next_[i] = real[s] ? static_cast<std::int32_t>(s) : next_[i + 1];
    }
    for (std::size_t i = 1; i < past_.size(); ++i) {
      past_[i] = real[i - 1] ? static_cast<std::int32_t>(i) : past_[i - 1];
    }
  }
  void cut(Index& first, Index& end) const {
    first = std::min<Index>(next_[static_cast<std::size_t>(first)], end);
    end = std::max<Index>(first, past_[static_cast<std::size_t>(end)]);
  }

 private:
  PooledVector<std::int32_t> next_, past_;  // the first at or after a key, and one past the last before it
};

/// f(t, from, to) for every row of B T.
template <class F>
void each_range(const VisibleKeys& visible, const F& f) {
  const std::int32_t *from = visible.from.data<std::int32_t>(), *to = visible.to.data<std::int32_t>();
  for (Index row = 0; row < visible.from.elements(); ++row) f(row, Index{from[row]}, Index{to[row]});
}

}  // namespace

VisibleKeys visible_keys(const AttentionMasks& masks, Index B, Index T, Index S) {
  if (!restricts(masks)) return {};
  const VisibleKeys visible{Tensor::empty({B, T}, DType::i32), Tensor::empty({B, T}, DType::i32)};
  std::int32_t *from = visible.from.data<std::int32_t>(), *to = visible.to.data<std::int32_t>();
  const bool* real_queries = masks.query_mask.defined() ? masks.query_mask.data<bool>() : nullptr;
  const auto number = [](const Tensor& of_sequence, Index i) {
    return Index{of_sequence.data<std::int32_t>()[i]};
  };
  const Index furthest = S + T;  // no two positions are further apart
  const Index before = std::min(masks.window_before, furthest),
              after = std::min(masks.window_after, furthest);
  const bool* real_keys = masks.key_mask.defined() ? masks.key_mask.data<bool>() : nullptr;
  RealKeys cutter(real_keys != nullptr ? S : 0);
  for (Index i = 0; i < number_of_sequences(masks, B); ++i) {
    const Sequence sequence = sequence_at(masks, i, T, S);
    const bool begins_entry = i == 0 || !masks.query_starts.defined();
    if (real_keys != nullptr && begins_entry) cutter.look_at(real_keys + i * S, S);
    const Index keys = masks.key_lengths.defined() ? number(masks.key_lengths, i) : sequence.keys;
    const Index prefix = masks.prefix_lengths.defined() ? number(masks.prefix_lengths, i) : 0;
    const Index offset = masks.alignment == CausalAlignment::top_left ? 0 : keys - sequence.queries;
    for (Index t = 0; t < sequence.queries; ++t) {
      const Index position = t + offset, row = sequence.row + t;
      Index first = 0, end = keys;
      if (masks.causal) end = std::min(end, std::max(position + 1, prefix));
      if (before != kUnlimited) first = std::max(first, position - before);
      if (after != kUnlimited) end = std::min(end, position + after + 1);
      first = std::min(first, keys);
      end = std::max(first, end) + sequence.key;
      first += sequence.key;
      if (real_keys != nullptr) cutter.cut(first, end);
      from[row] = static_cast<std::int32_t>(first);
      to[row] = static_cast<std::int32_t>(real_queries == nullptr || real_queries[row] ? end : first);
    }
  }
  return visible;
}

Tensor seeing_queries(const VisibleKeys& visible) {
  if (!visible.defined()) return {};
  const Tensor sees = Tensor::empty(visible.from.shape(), DType::boolean);
  each_range(visible, [&](Index row, Index from, Index to) { sees.data<bool>()[row] = from < to; });
  return sees;
}

Tensor seen_keys(const VisibleKeys& visible, const Tensor& key_mask, Index S) {
  if (!visible.defined()) return key_mask;
  const Index B = visible.from.size(0), T = visible.from.size(1);
  const Tensor seen = Tensor::zeros({B, S}, DType::boolean);
  const bool* real = key_mask.defined() ? key_mask.data<bool>() : nullptr;
  Index marked = 0;  // up to here; neither end of the ranges ever moves back within a batch entry
  each_range(visible, [&](Index row, Index from, Index to) {
    if (row % T == 0) marked = 0;
    if (from >= to) return;
    const Index begin = row / T * S;
    for (Index s = std::max(from, marked); s < to; ++s) {
      seen.data<bool>()[begin + s] = real == nullptr || real[begin + s];
    }
    marked = std::max(marked, to);
  });
  return seen;
}

Tensor pairs_left_in(const Tensor& mask) {
  if (!mask.defined() || mask.dtype() == DType::boolean) return mask;
  const Tensor pairs = Tensor::empty(mask.shape(), DType::boolean);
  bool* left_in = pairs.data<bool>();
  dispatch(
      "attention",
      [&](auto, const auto* values) {
        using T = std::decay_t<decltype(*values)>;
        for (Index i = 0; i < mask.elements(); ++i) {
          left_in[i] = values[i] != -std::numeric_limits<T>::infinity();
        }
      },
      mask);
  return std::find(left_in, left_in + pairs.elements(), false) == left_in + pairs.elements() ? Tensor()
                                                                                             : pairs;
}

SeenRows seen_rows(const Tensor& pairs, const Shape& scores, Index groups) {
  const Index B = scores[0], H = scores[1], T = scores[2], S = scores[3];
  const SeenRows seen{Tensor::zeros({B, T, H}, DType::boolean),
                      Tensor::zeros({B, S, groups}, DType::boolean)};
  Index strides[4];
  broadcast_strides(scores, pairs.shape(), strides);
  for (Index row = 0; row < B * H * T; ++row) {
    const Index b = row / (H * T), h = row / T % H, t = row % T;
    const bool* may = pairs.data<bool>() + b * strides[0] + h * strides[1] + t * strides[2];
    bool& sees = seen.queries.data<bool>()[(b * T + t) * H + h];
    bool* keys = seen.keys.data<bool>() + b * S * groups + h / (H / groups);
    for (Index s = 0; s < S; ++s) {
      if (may[s * strides[3]]) sees = keys[s * groups] = true;
    }
  }
  return seen;
}

Tensor visible_pairs(const VisibleKeys& visible, Index S) {
  if (!visible.defined()) return {};
  const Tensor pairs = Tensor::empty({visible.from.size(0), 1, visible.from.size(1), S}, DType::boolean);
  bool* may = pairs.data<bool>();
  each_range(visible, [&](Index row, Index from, Index to) {
    for (Index s = 0; s < S; ++s) may[row * S + s] = from <= s && s < to;
  });
  return pairs;
}

}  // namespace tapeformer
