#include <tapeformer/nn/attention/contiguous_cache.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tapeformer {
namespace {

constexpr Index kFirstRoom = 32;

/// Row i of `to` [R', room', W] from token `at` on becomes the first `tokens` of row order[i], or without an
/// order row i, of `from` [R, room, W].
void copy_tokens(const Tensor& from, Index tokens, const Tensor& to, Index at,
                 const std::vector<std::int32_t>* order = nullptr) {
  const Index token_bytes = to.size(2) * bytes_of(to.dtype());
  for (Index row = 0; row < to.size(0); ++row) {
    const Index source = order != nullptr ? (*order)[static_cast<std::size_t>(row)] : row;
    std::memcpy(static_cast<char*>(to.raw()) + (row * to.size(1) + at) * token_bytes,
                static_cast<const char*>(from.raw()) + source * from.size(1) * token_bytes,
                static_cast<std::size_t>(tokens * token_bytes));
  }
}

}  // namespace

void ContiguousCache::make_room(Index tokens, const Tensor& keys, const Tensor& values) {
  const Index room = keys_.defined() ? keys_.size(1) : 0;
  if (keys_.defined() && tokens <= room) return;
  const Index wanted = capacity_ > 0 ? capacity_ : std::max({tokens, 2 * room, kFirstRoom});
  const auto grow = [&](Tensor& held, const Tensor& fresh) {
    if (!fresh.defined()) return;
    const Tensor larger = Tensor::empty({fresh.size(0), wanted, fresh.size(2)}, fresh.dtype());
    if (held.defined()) copy_tokens(held, length_, larger, 0);
    held = larger;
  };
  grow(keys_, keys);
  grow(values_, values);
}

void ContiguousCache::append(const Tensor& keys, const Tensor& values) {
  check_append(keys, values, keys_);
  const Index tokens = keys.size(1);
  make_room(length_ + tokens, keys, values);
  copy_tokens(keys, tokens, keys_, length_);
  if (values.defined()) copy_tokens(values, tokens, values_, length_);
  length_ += tokens;
}

void ContiguousCache::reorder(const std::vector<std::int32_t>& order) {
  if (rows() == 0) return;
  check_rows(order);
  if (order.empty()) return clear();
  std::vector<std::int32_t> same(static_cast<std::size_t>(rows()));
  std::iota(same.begin(), same.end(), 0);
  if (order == same) return;
  for (Tensor* held : {&keys_, &values_}) {
    if (!held->defined()) continue;
    const Tensor next =
        Tensor::empty({static_cast<Index>(order.size()), held->size(1), held->size(2)}, held->dtype());
    copy_tokens(*held, length_, next, 0, &order);
    *held = next;
  }
}

void ContiguousCache::clear() {
  keys_ = values_ = {};
  length_ = 0;
}

Index ContiguousCache::bytes() const {
  return keys_.defined() ? rows() * length_ * (widths_.key + widths_.value) * bytes_of(keys_.dtype()) : 0;
}

}  // namespace tapeformer
