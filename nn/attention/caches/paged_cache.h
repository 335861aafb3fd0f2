#pragma once

#include <tapeformer/nn/attention/caches/kv_cache.h>

namespace tapeformer {

/// Tokens in blocks of a fixed size from a pool; a table per row lists its blocks in order. Rows with the
/// same beginning share blocks, which are counted; append() copies a shared block before it writes to it. So
/// reordering rows only copies tables, at the price of gathering the tokens of each row again in every call.
/// Source:  Kwon et al. 2023, arXiv:2309.06180
class PagedCache : public KvCache {
 public:
  PagedCache(const CacheConfig& config, const CacheWidths& widths)
      : KvCache(widths, config.capacity), block_size_(config.block_size) {}

  void append(const Tensor& keys, const Tensor& values) override;
  Tensor keys() const override { return gathered(keys_); }
  Tensor values() const override { return gathered(values_); }
  Index rows() const override { return static_cast<Index>(tables_.size()); }
  void clear() override;
  Index bytes() const override;

  /// Blocks in the pool, free ones included.
  Index pool_blocks() const { return static_cast<Index>(references_.size()); }

 private:
  void pick(const std::vector<std::int32_t>& order) override;
  using Table = PooledVector<std::int32_t>;

  std::int32_t fresh_block();
  void grow_pool();
  std::int32_t writable_block(Table& table, Index at);
  void release(const Table& table);
  Tensor gathered(const Tensor& pool) const;

  const Index block_size_;
  Tensor keys_, values_;                   // the pool, [blocks, block_size, width]
  PooledVector<std::int32_t> references_;  // number of tables with a block
  PooledVector<std::int32_t> free_;
  PooledVector<Table> tables_;
};

}  // namespace tapeformer
