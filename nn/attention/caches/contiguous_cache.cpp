#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/nn/attention/caches/contiguous_cache.h>

#include <algorithm>
#include <numeric>

namespace tapeformer {

constexpr Index kFirstRoom = 32;

void ContiguousCache::make_room(Index tokens, const Tensor& keys, const Tensor& values) {
  const Index room = keys_.defined() ? keys_.size(1) : 0;
  if (keys_.defined() && tokens <= room) return;
  const Index wanted = capacity_ > 0 ? capacity_ : std::max({tokens, 2 * room, kFirstRoom});
  const auto grown = [&](const Tensor& cached, const Tensor& added) {
    if (!added.defined()) return Tensor();
    Tensor larger = Tensor::empty({added.size(0), wanted, added.size(2)}, added.dtype(), added.device());
    if (cached.defined()) copy_tokens(cached.size(0), length_, cached, room, 0, larger, wanted, 0);
    return larger;
  };
  const Tensor larger_keys = grown(keys_, keys);  // there may be memory for these alone
  values_ = grown(values_, values);
  keys_ = larger_keys;
}

void ContiguousCache::append(const Tensor& keys, const Tensor& values) {
  check_append(keys, values, keys_);
  const Index tokens = keys.size(1);
  make_room(length_ + tokens, keys, values);
  const auto put = [&](const Tensor& added, const Tensor& cached) {
    if (added.defined()) copy_tokens(rows(), tokens, added, tokens, 0, cached, cached.size(1), length_);
  };
  if (step_.positions.defined()) {
    put_step(keys, values, keys_, values_);
  } else {
    put(keys, keys_);
    put(values, values_);
  }
  length_ += tokens;
}

bool ContiguousCache::reserve(Index tokens) {
  if (!keys_.defined() || (capacity_ > 0 && tokens > capacity_)) return false;
  make_room(tokens, keys_, values_);
  return true;
}

void ContiguousCache::pick(const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> same(static_cast<std::size_t>(rows()));
  std::iota(same.begin(), same.end(), 0);
  if (order == same) return;
  for (Tensor* cached : {&keys_, &values_})
    if (cached->defined()) pick_rows(*cached, order);
}

void ContiguousCache::clear() {
  keys_ = values_ = {};
  length_ = 0;
}

Index ContiguousCache::bytes() const {
  return keys_.defined() ? rows() * length_ * (widths_.key + widths_.value) * bytes_of(keys_.dtype()) : 0;
}

}  // namespace tapeformer
