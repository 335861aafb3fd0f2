#include <tapeformer/autograd/kernels/cpu/parallel.h>
#include <tapeformer/autograd/kernels/visibility.h>

#include <algorithm>

namespace tapeformer::kernels {
namespace {

/// Shrinks ranges to their first and last real key.
class RealKeys {
 public:
  explicit RealKeys(Index S) : S_(S), next_(thread_memory<RealKeys, std::int32_t>(2 * (S + 1))) {
    past_ = next_ + S + 1;
  }
  void look_at(const bool* real) {
    next_[S_] = static_cast<std::int32_t>(S_);
    past_[0] = 0;
    for (Index s = S_; s-- > 0;) next_[s] = real[s] ? static_cast<std::int32_t>(s) : next_[s + 1];
    for (Index s = 1; s <= S_; ++s) past_[s] = real[s - 1] ? static_cast<std::int32_t>(s) : past_[s - 1];
  }
  KeyRange cut(const KeyRange& range) const {
    const Index from = std::min<Index>(next_[range.from], range.to);
    return {from, std::max<Index>(from, past_[range.to])};
  }

 private:
  Index S_;
  std::int32_t *next_, *past_;  // the first real key at or after a key, and one past the last before it
};

}  // namespace

void find_visible_keys(Cpu, const Visibility& v, std::int32_t* from, std::int32_t* to) {
  RealKeys real_keys(v.key_mask != nullptr ? v.keys : 0);
  for (Index i = 0; i < v.sequences; ++i) {
    const Sequence sequence = sequence_at(v, i);
    const bool begins_entry = i == 0 || v.query_starts == nullptr;
    if (v.key_mask != nullptr && begins_entry) real_keys.look_at(v.key_mask + i * v.keys);
    for (Index t = 0; t < sequence.queries; ++t) {
      const Index row = sequence.row + t;
      KeyRange range = range_at(v, sequence, i, t);
      if (v.key_mask != nullptr) range = real_keys.cut(range);
      from[row] = static_cast<std::int32_t>(range.from);
      to[row] =
          static_cast<std::int32_t>(v.query_mask == nullptr || v.query_mask[row] ? range.to : range.from);
    }
  }
}

void find_positions(Cpu, const Visibility& v, std::int32_t* positions) {
  for (Index i = 0; i < v.sequences; ++i) {
    const Sequence sequence = sequence_at(v, i);
    for (Index t = 0; t < sequence.queries; ++t)
      positions[sequence.row + t] = static_cast<std::int32_t>(sequence.key + position_at(v, sequence, i, t));
  }
}

void write_relative_entries(Cpu, Index rows, Index keys, Index reach, const std::int32_t* positions,
                            std::int32_t* entries) {
  for (Index row = 0; row < rows; ++row)
    for (Index s = 0; s < keys; ++s) entries[row * keys + s] = relative_entry(s, positions[row], reach);
}

void write_visible_pairs(Cpu, Index rows, Index keys, const std::int32_t* from, const std::int32_t* to,
                         bool* pairs) {
  for (Index row = 0; row < rows; ++row)
    for (Index s = 0; s < keys; ++s) pairs[row * keys + s] = from[row] <= s && s < to[row];
}

void find_seen_rows(Cpu, const PairMask& m, bool* queries, bool* keys) {
  std::fill_n(queries, m.batch * m.queries * m.heads, false);
  std::fill_n(keys, m.batch * m.keys * m.groups, false);
  for (Index row = 0; row < m.batch * m.heads * m.queries; ++row) {
    const Index b = row / (m.heads * m.queries), h = row / m.queries % m.heads, t = row % m.queries;
    bool& sees = queries[(b * m.queries + t) * m.heads + h];
    bool* const seen = keys + b * m.keys * m.groups + h / (m.heads / m.groups);
    for (Index s = 0; s < m.keys; ++s)
      if (m.at(b, h, t, s)) sees = seen[s * m.groups] = true;
  }
}

}  // namespace tapeformer::kernels
