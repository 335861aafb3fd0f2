#pragma once

#include <tapeformer/nn/next_token_model.h>
#include <tapeformer/nn/replay.h>
#include <tapeformer/nn/transformer/decoder_only.h>

namespace tapeformer {

/// Texts that a language model goes on with: at first one row, the prompt. With a cache a step computes its
/// new tokens only, without one everything anew; the logits are the same. A model with prefix sees what is
/// left of the prompt in both directions. Past the context a row's oldest tokens are dropped as
/// context_start() says, unless positions are rotary: these go on to their stated limit, and the step beyond
/// it is refused. On a GPU, with a contiguous cache, a step of rows that are as many as before is queued as a
/// graph, unless `graphs` is false; the logits are the same to the last bit. A call that throws leaves
/// everything as it was, but that an empty cache is filled anew.
class LanguageSteps : public NextTokenModel {
 public:
  /// The model must stay where it is.
  explicit LanguageSteps(const DecoderOnly& model, const std::optional<CacheConfig>& cache = CacheConfig{},
                         bool graphs = true);

  /// The first tokens, of one row. Called once, first.
  /// Shapes:  -> logits [1, V] of what may follow
  /// Throws:  ShapeError if there are none, or one is outside the vocabulary; Error when called again
  Tensor prompt(const TokenIds& tokens);
  /// Throws:  ShapeError unless there is a token of the vocabulary for each row, and a row
  Tensor step(const TokenIds& tokens) override;
  /// Throws:  ShapeError naming a row that is not there
  void reorder(const std::vector<std::int32_t>& rows) override;
  Index cache_bytes() const { return caches_ ? caches_->bytes() : 0; }
  /// The steps since the cache moved; nothing elsewhere than on a GPU.
  const std::optional<Replay>& replay() const { return replay_; }

 private:
  void check_ids(const char* op, const TokenIds& tokens) const;
  /// After an exception: what the caches hold of this step's tokens is not known.
  void forget();
  /// Whether tokens may go to places in the cache that only the device knows: `tokens` in all.
  bool has_places(Index tokens);
  Tensor next_logits();
  /// Of one token a row, with places for it.
  Tensor replayed(const Tensor& ids);
  Tensor last_logits(const Tensor& states) const;

  const DecoderOnly& model_;
  const bool graphs_;
  std::optional<LayerCaches> caches_;
  std::optional<Replay> replay_;  // of steps
  const void* held_ = nullptr;    // where the first layer's keys lie, which it writes to
  std::vector<TokenIds> rows_;
  Index start_ = 0;   // the first token that the model looks at
  Index prompt_ = 0;  // tokens of the prompt
};

}  // namespace tapeformer
