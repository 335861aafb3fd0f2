#pragma once

#include <tapeformer/nn/cuda_graph_cache.h>
#include <tapeformer/nn/generation/next_token_model.h>
#include <tapeformer/nn/transformer/layer_caches.h>

#include <optional>

namespace tapeformer {

/// Rows that a model goes on with. With a cache a step computes its new tokens only, without one everything
/// anew; the logits are the same. Past the context a row's oldest tokens are dropped as context_start() says,
/// unless positions are rotary: these go on to their stated limit, and the step beyond it is refused. On a
/// GPU, with a contiguous cache, a step of rows that are as many as before is queued as a graph, unless
/// `graphs` is false; the logits are the same to the last bit. A call that throws leaves everything as it
/// was, but that an empty cache is filled anew.
class CachedSteps : public NextTokenModel {
 public:
  /// Throws:  ShapeError unless there is a token of the vocabulary for each row, and a row
  Tensor step(const TokenIds& tokens) override;
  /// Throws:  ShapeError naming a row that is not there
  void reorder(const std::vector<std::int32_t>& rows) override;
  /// The steps since the cache moved; nothing elsewhere than on a GPU.
  const std::optional<CudaGraphCache>& replay() const { return replay_; }

 protected:
  struct Limits {
    Index vocabulary = 0;
    Index context = 0;        ///< positions that there are; 0 where they are rotary
    Index max_positions = 0;  ///< of rotations, as RotaryConfig has it
  };
  /// The model must stay where it is.
  CachedSteps(const Module& model, Device device, const Limits& limits, bool graphs);

  /// What is kept of the rows' tokens; nullptr where nothing is.
  virtual LayerCaches* caches() = 0;
  /// reorder() of all that is kept, by rows that are there.
  virtual void reorder_kept(const std::vector<std::int32_t>& rows) = 0;
  /// Of what follows the last of `ids`, which go on where the caches end, or begin at start().
  /// Shapes:  ids i32 [R, T] -> [R, V]
  virtual Tensor logits(const Tensor& ids) = 0;

  void check_ids(const char* op, const TokenIds& tokens) const;
  Tensor next_logits();
  /// After an exception: what the caches hold of this step's tokens is not known.
  void forget();
  /// The first token that the model looks at.
  Index start() const { return start_; }

  std::vector<TokenIds> rows_;  // of one length

 private:
  /// Whether tokens may go to places in the caches that only the device knows: `tokens` in all.
  bool has_places(Index tokens);
  /// logits() of one token a row, with places for it.
  Tensor replayed(const Tensor& ids);

  const Module& model_;
  const Device device_;
  const Limits limits_;
  const bool graphs_;
  std::optional<CudaGraphCache> replay_;  // of steps
  const void* held_ = nullptr;            // where the first layer's keys lie, which it writes to
  Index start_ = 0;
};

}  // namespace tapeformer
