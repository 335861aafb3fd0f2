#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/tensor.h>

#include <memory>

namespace tapeformer {

/// The numbers of values in a layer's cache. Latent attention keeps latents and rotary keys in `key` and its
/// indexer's keys in `value`, linear attention only a `state`.
struct CacheWidths {
  /// Per token, for its key and its value.
  Index key = 0, value = 0;
  /// Per row, for any number of tokens.
  Index state = 0;
};

/// A step of one token per row whose position lies in the device's memory, so that a graph captured once is
/// correct for every position.
struct CacheStep {
  Tensor positions;  ///< i32 [R, 1]: the tokens' position, the same in every row
  Tensor lengths;    ///< i32 [R]: the number of tokens after the step
};
/// The step that writes at `positions`, i32 [R, 1].
CacheStep step_to(const Tensor& positions);

/// The keys and values (or latents) that one attention layer computed for the tokens it has seen. All rows of
/// the batch hold the same number of tokens. For inference: nothing in it is recorded.
class KvCache {
 public:
  virtual ~KvCache() = default;

  /// Appends T tokens to every row; the first call decides the number of rows and the type.
  /// Shapes:  keys [R, T, widths.key], values [R, T, widths.value], undefined where the width is 0
  /// Throws:  ShapeError if the shapes do not fit, or beyond the stated capacity; DTypeError for another
  ///          type; TapeError for recorded tensors
  virtual void append(const Tensor& keys, const Tensor& values) = 0;
  /// All keys so far, [R, S', width] with S' >= length(); values beyond length() are unspecified.
  virtual Tensor keys() const = 0;
  /// See keys(); undefined where the width is 0.
  virtual Tensor values() const = 0;

  /// Tokens in each row.
  Index length() const { return length_; }
  /// Rows of the batch; 0 before the first tokens.
  virtual Index rows() const = 0;
  /// Row i becomes the former row rows[i]; the number of rows may change. Beam search selects its survivors
  /// by it. An empty cache stays empty.
  /// Throws:  ShapeError naming a row that does not exist
  void reorder(const std::vector<std::int32_t>& rows);
  /// Removes all tokens.
  virtual void clear() = 0;
  /// Bytes that its tokens use, without spare room; shared blocks count once.
  virtual Index bytes() const = 0;

  /// i32 [R], all length(), for AttentionMasks::key_lengths.
  Tensor lengths(Device device = default_device()) const;

  /// Makes room for `tokens` tokens per row in total, so that keys() and values() keep their addresses until
  /// it is full. False if that is impossible, or if this cache is not contiguous.
  virtual bool reserve(Index /*tokens*/) { return false; }
  /// Until set_step({}), append() writes a token of each row at the position of `step`, for which there must
  /// be room, and lengths() are the step's. The caller keeps length() in agreement.
  void set_step(CacheStep step) { step_ = std::move(step); }
  /// The step that set_step() has set.
  const CacheStep& step() const { return step_; }
  /// Sets the number of tokens, after a graph of a step has written one or to start over in the same memory.
  /// Only for caches that can reserve().
  void set_length(Index length) { length_ = length; }

 protected:
  /// An empty cache; a capacity of 0 means no limit.
  KvCache(const CacheWidths& widths, Index capacity) : widths_(widths), capacity_(capacity) {}
  /// Throws as append(). `cached` has the type of the cache, or is undefined.
  void check_append(const Tensor& keys, const Tensor& values, const Tensor& cached) const;
  /// reorder() for existing rows, at least one, in a cache that is not empty.
  virtual void pick(const std::vector<std::int32_t>& rows) = 0;
  /// Sets y[o, to + i] = x[o, from + i] for o < rows and i < count, in tokens; x and y [.., .., W] are taken
  /// as rows of length_x and length_y tokens. Not recorded.
  static void copy_tokens(Index rows, Index count, const Tensor& x, Index length_x, Index from,
                          const Tensor& y, Index length_y, Index to);

  /// Sets cached[r, step().positions[r]] = keys[r], and values likewise.
  void put_step(const Tensor& keys, const Tensor& values, const Tensor& cached_keys,
                const Tensor& cached_values) const;

  const CacheWidths widths_;  ///< of one token
  const Index capacity_;      ///< most tokens per row; 0 for no limit
  Index length_ = 0;          ///< tokens in each row
  CacheStep step_;            ///< where tokens go while a step is set
};

/// contiguous: one piece of memory per row; paged: blocks that rows share until they write to them.
enum class CacheKind { contiguous, paged };
template <>
inline constexpr EnumNames kNames<CacheKind>{"[kv_cache] the kind", {"contiguous", "paged"}};

struct CacheConfig {
  CacheKind kind = CacheKind::contiguous;  ///< layout of the memory
  Index capacity = 0;                      ///< most tokens per row; 0 for no limit
  Index block_size = 16;                   ///< tokens per block, when paged
};

/// Makes a cache; a StateCache if there is a state, whatever the kind.
/// Throws: Error if a size is negative, or the width of keys is 0
std::unique_ptr<KvCache> make_cache(const CacheConfig& config, const CacheWidths& widths);

}  // namespace tapeformer
