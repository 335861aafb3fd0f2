#pragma once

#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/nn/generation/search.h>
#include <tapeformer/nn/transformer/layer_caches.h>

#include <optional>

namespace tapeformer {

/// Rows of tokens that a model extends step by step. With a cache a step computes only its new tokens,
/// without one everything; the logits are the same. If a prompt exceeds the context, the model sees its last
/// tokens; as a row grows, its oldest tokens are dropped as context_start() says. Rotary positions instead
/// continue to their stated limit, and a step beyond it is refused. On a GPU, with a contiguous cache, a step
/// with an unchanged number of rows is queued as a CUDA graph, unless `graphs` is false; the logits are the
/// same to the last bit. A call that throws changes nothing, except that the cache is emptied and refilled
/// by the next one; but a reorder() that runs out of memory leaves TranslationSteps unusable.
class CachedSteps : public NextTokenModel {
 public:
  /// Throws:  ShapeError unless there is at least one row, and a token of the vocabulary for each
  Tensor step(const TokenIds& tokens) override;
  /// Throws:  ShapeError naming a row that does not exist
  void reorder(const std::vector<std::int32_t>& rows) override;
  /// The graphs of the steps since the cache moved; none except on a GPU.
  const std::optional<CudaGraphCache>& replay() const { return replay_; }

 protected:
  /// The limits of a model's inputs.
  struct Limits {
    Index vocabulary = 0;     ///< V
    Index context = 0;        ///< the number of positions; 0 without a table of them
    Index max_positions = 0;  ///< as in RotaryConfig
  };
  /// The model must stay where it is.
  CachedSteps(const Module& model, Device device, const Limits& limits, bool graphs);

  /// The caches of the rows' tokens; nullptr if there are none.
  virtual LayerCaches* caches() = 0;
  /// Reorders all state that is kept by row. The rows exist.
  virtual void reorder_kept(const std::vector<std::int32_t>& rows) = 0;
  /// The logits after the last of `ids`, which continue where the caches end, or begin at start().
  /// Shapes:  ids i32 [R, T] -> [R, V]
  virtual Tensor logits(const Tensor& ids) = 0;

  /// Throws: ShapeError unless there is a token of the vocabulary for each row.
  void check_ids(const char* op, const TokenIds& tokens) const;
  /// The logits after the rows' last tokens; with a cache only the new tokens are computed.
  Tensor next_logits();
  /// Clears the caches after an exception, when it is unknown which tokens they hold.
  void forget();
  /// The first token that the model sees.
  Index start() const { return start_; }

  std::vector<TokenIds> rows_;  ///< all of the same length
  Index prompt_ = 0;            ///< the tokens per row before the first step

 private:
  /// Makes room for `tokens` in the caches; true if their places may then be known on the device alone.
  bool has_places(Index tokens);
  /// logits() of one token per row, as a graph.
  Tensor replayed(const Tensor& ids);

  const Module& model_;
  const Device device_;
  const Limits limits_;
  const bool graphs_;
  std::optional<CudaGraphCache> replay_;  // the graphs of steps
  std::vector<const void*> held_;         // addresses of the caches when graphs were captured
  Index start_ = 0;
};

}  // namespace tapeformer
