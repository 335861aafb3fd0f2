#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/nn/attention/caches/paged_cache.h>

#include <algorithm>

namespace tapeformer {

constexpr Index kFirstBlocks = 8;

void PagedCache::grow_pool() {
  const Index before = pool_blocks(), after = std::max(2 * before, kFirstBlocks);
  for (Tensor* pool : {&keys_, &values_}) {
    if (!pool->defined()) continue;
    const Tensor larger = Tensor::empty({after, block_size_, pool->size(2)}, pool->dtype(), pool->device());
    copy_tokens(1, before * block_size_, *pool, 0, 0, larger, 0, 0);
    *pool = larger;
  }
  references_.resize(static_cast<std::size_t>(after), 0);
  for (Index block = after - 1; block >= before; --block) free_.push_back(static_cast<std::int32_t>(block));
}

std::int32_t PagedCache::fresh_block() {
  if (free_.empty()) grow_pool();
  const std::int32_t block = free_.back();
  free_.pop_back();
  references_[static_cast<std::size_t>(block)] = 1;
  return block;
}

/// The block of token `at` of a row, made exclusive to the row for writing.
std::int32_t PagedCache::writable_block(Table& table, Index at) {
  const auto index = static_cast<std::size_t>(at / block_size_);
  if (index == table.size()) {
    table.push_back(fresh_block());
  } else if (references_[static_cast<std::size_t>(table[index])] > 1) {
    const std::int32_t shared = table[index], own = fresh_block();
    for (const Tensor& pool : {keys_, values_})
      if (pool.defined())
        copy_tokens(1, at % block_size_, pool, 0, shared * block_size_, pool, 0, own * block_size_);
    --references_[static_cast<std::size_t>(shared)];
    table[index] = own;
  }
  return table[index];
}

void PagedCache::append(const Tensor& keys, const Tensor& values) {
  check_append(keys, values, keys_);
  if (tables_.empty()) {
    tables_.resize(static_cast<std::size_t>(keys.size(0)));
    keys_ = Tensor::empty({0, block_size_, widths_.key}, keys.dtype(), keys.device());
    if (values.defined())
      values_ = Tensor::empty({0, block_size_, widths_.value}, keys.dtype(), keys.device());
  }
  const Index tokens = keys.size(1);
  for (Index row = 0; row < rows(); ++row) {
    for (Index done = 0; done < tokens;) {
      const Index at = length_ + done, within = at % block_size_;
      const Index count = std::min(block_size_ - within, tokens - done);
      const Index to = writable_block(tables_[static_cast<std::size_t>(row)], at) * block_size_ + within;
      copy_tokens(1, count, keys, 0, row * tokens + done, keys_, 0, to);
      if (values.defined()) copy_tokens(1, count, values, 0, row * tokens + done, values_, 0, to);
      done += count;
    }
  }
  length_ += tokens;
}

Tensor PagedCache::gathered(const Tensor& pool) const {
  if (!pool.defined()) return {};
  const Tensor tokens = Tensor::empty({rows(), length_}, DType::i32, Device::cpu());  // their places
  auto* token = tokens.data<std::int32_t>();
  for (const Table& table : tables_) {
    for (Index at = 0; at < length_; ++at) {
      const Index block = table[static_cast<std::size_t>(at / block_size_)];
      *token++ = static_cast<std::int32_t>(block * block_size_ + at % block_size_);
    }
  }
  return embedding(pool.alias({pool.size(0) * block_size_, pool.size(2)}), tokens.to(pool.device()));
}

void PagedCache::release(const Table& table) {
  for (const std::int32_t block : table)
    if (--references_[static_cast<std::size_t>(block)] == 0) free_.push_back(block);
}

void PagedCache::pick(const std::vector<std::int32_t>& order) {
  PooledVector<Table> next;
  next.reserve(order.size());
  for (const std::int32_t row : order) {
    next.push_back(tables_[static_cast<std::size_t>(row)]);
    for (const std::int32_t block : next.back()) ++references_[static_cast<std::size_t>(block)];
  }
  for (const Table& table : tables_) release(table);
  tables_ = std::move(next);
}

void PagedCache::clear() {
  keys_ = values_ = {};
  references_.clear();
  free_.clear();
  tables_.clear();
  length_ = 0;
}

Index PagedCache::bytes() const {
  if (length_ == 0) return 0;
  PooledVector<bool> seen(references_.size(), false);
  Index tokens = 0;
  for (const Table& table : tables_) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      const auto block = static_cast<std::size_t>(table[i]);
      if (!seen[block]) tokens += std::min(block_size_, length_ - static_cast<Index>(i) * block_size_);
      seen[block] = true;
    }
  }
  return tokens * (widths_.key + widths_.value) * bytes_of(keys_.dtype());
}

}  // namespace tapeformer
