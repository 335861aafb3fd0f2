#include <tapeformer/autograd/cuda/arena.h>

#include <algorithm>
#include <iterator>

namespace tapeformer::cuda {
namespace {

constexpr std::size_t kUnit = 512;  // more alignment than any kernel or matrix product needs
constexpr std::size_t kLeastSegment = std::size_t{2} << 20;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return std::max<std::size_t>((bytes + unit - 1) / unit, 1) * unit;
}

}  // namespace

void* Arena::allocate(std::size_t bytes, const MakeSegment& make) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::size_t size = rounded_up(bytes, kUnit);
  auto found = free_.lower_bound({size, nullptr});
  if (found == free_.end()) {
    add_segment(std::max(size, held_ / 8), make);
    found = free_.lower_bound({size, nullptr});
  }
  const auto block = blocks_.find(found->second);
  take_from_free(block);
  const std::size_t rest = block->second.bytes - size;
  block->second = {size, false, false};
  if (rest > 0) {
    const auto behind = blocks_.emplace(block->first + size, Block{rest, true, false}).first;
    free_.insert({rest, behind->first});
  }
  used_ += size;
  fresh_ += size;
  return block->first;
}

bool Arena::release(void* block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(static_cast<char*>(block));
  if (found == blocks_.end() || found->second.is_free) return false;
  used_ -= found->second.bytes;
  if (!found->second.is_kept) fresh_ -= found->second.bytes;
  make_free(found);
  return true;
}

void Arena::reserve(std::size_t bytes, const MakeSegment& make) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > held_ - used_) add_segment(bytes - (held_ - used_), make);
}

void Arena::drop_free(const DropSegment& drop) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto first = blocks_.find(segment->first);
    if (!first->second.is_free || first->second.bytes != segment->second) {
      ++segment;
      continue;
    }
    take_from_free(first);
    blocks_.erase(first);
    held_ -= segment->second;
    drop(segment->first, segment->second);
    segment = segments_.erase(segment);
  }
}

void Arena::keep_used() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [address, block] : blocks_) block.is_kept = !block.is_free;
  fresh_ = 0;
}

bool Arena::contains(const void* from) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto* const address = static_cast<char*>(const_cast<void*>(from));
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return false;
  --after;
  return address < after->first + after->second.bytes && !after->second.is_kept;
}

std::int64_t Arena::fresh_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<std::int64_t>(fresh_);
}

void Arena::add_segment(std::size_t bytes, const MakeSegment& make) {
  const std::size_t size = rounded_up(bytes, kLeastSegment);
  auto* const segment = static_cast<char*>(make(size));
  segments_[segment] = size;
  held_ += size;
  make_free(blocks_.emplace(segment, Block{size, true, false}).first);
}

/// Joins free neighbours within their segment.
void Arena::make_free(Blocks::iterator block) {
  block->second.is_free = true;
  block->second.is_kept = false;
  const auto behind = std::next(block);
  if (behind != blocks_.end() && behind->second.is_free && !begins_segment(behind->first)) {
    take_from_free(behind);
    block->second.bytes += behind->second.bytes;
    blocks_.erase(behind);
  }
  if (block != blocks_.begin() && !begins_segment(block->first)) {
    const auto before = std::prev(block);
    if (before->second.is_free) {
      take_from_free(before);
      before->second.bytes += block->second.bytes;
      blocks_.erase(block);
      block = before;
    }
  }
  free_.insert({block->second.bytes, block->first});
}

}  // namespace tapeformer::cuda
