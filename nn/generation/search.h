#pragma once

#include <tapeformer/autograd/config/names.h>
#include <tapeformer/nn/attention/caches/kv_cache.h>
#include <tapeformer/nn/generation/sampling.h>

#include <functional>
#include <optional>
#include <vector>

namespace tapeformer {

/// Ids of tokens, in order.
using TokenIds = std::vector<std::int32_t>;

/// A model as a search sees it: rows of tokens that grow by one token at a time.
class NextTokenModel {
 public:
  virtual ~NextTokenModel() = default;
  /// Appends tokens[i] to row i.
  /// Shapes:  -> logits [R, V] of the next token
  virtual Tensor step(const TokenIds& tokens) = 0;
  /// Makes row i a copy of the former row rows[i]; the number of rows may change.
  virtual void reorder(const std::vector<std::int32_t>& rows) = 0;
};

/// When transformers' beam search of a sentence ends, once it has found as many outputs as there are beams.
enum class EarlyStopping {
  yes,   ///< then
  no,    ///< if the best beam, by its score at its present length, is not better than the worst of them
  never  ///< the same, by its score at the length that favours it most
};
template <>
inline constexpr EnumNames kNames<EarlyStopping>{"early_stopping", {"true", "false", "never"}};

/// Beam search as `generate` of transformers does it. A hypothesis scores log p / length^alpha, where the
/// length counts its end; as many of the best candidates of a step may end as there are beams.
struct TransformersRules {
  EarlyStopping early_stopping = EarlyStopping::no;  ///< when a search ends
  bool forced_end = true;  ///< an output of max_tokens gets its end at no cost; otherwise it has none
};

struct SearchConfig {
  Index beam = 1;               ///< hypotheses kept; 1 is greedy search
  Index n_best = 1;             ///< outputs found for a source, at most as many as hypotheses are kept
  double length_penalty = 0.6;  ///< alpha: a hypothesis scores log p / ((5 + length) / 6)^alpha; 0 for log p
  std::optional<TransformersRules> transformers;  ///< search by these rules instead
  TokenIds never;                                 ///< tokens that are not in any output
  TokenIds forced;                                ///< what every output begins with, at no cost
  Index no_repeat_ngram = 0;  ///< n > 0: no output, its begin included, has the same n tokens twice
  Index min_tokens = 0;       ///< shortest output, what is forced included
  bool renormalize = false;   ///< the others share their probability
  Index max_tokens = 0;       ///< longest output; 0 for twice the source and ten more, within max_length
  double length_factor =
      0;             ///< the longest output as a multiple of the source and its end instead, if above 0
  Index batch = 64;  ///< sentences decoded side by side
  std::int32_t padding = 0, begin = 2, end = 3;      ///< the ids of our own tokenizers
  TokenIds source_before, source_after;              ///< tokens around a source and its end
  std::optional<CacheConfig> cache = CacheConfig{};  ///< without one, every step computes everything again
  bool graphs = true;  ///< on a GPU steps are queued as CUDA graphs: see CachedSteps
  /// Called with the number of finished sentences as they finish.
  std::function<void(Index done)> progress = {};
};

/// An output and how likely the model holds it.
struct Hypothesis {
  TokenIds tokens;                      ///< without begin and end, with what is forced
  double log_probability = 0;           ///< of all tokens and the end, in nats
  double score = 0;                     ///< with the length penalty
  std::vector<Hypothesis> others = {};  ///< the next best, best first: n_best - 1, or as many as there are
};

/// Called with a sentence's number and what was found for it.
using Finished = std::function<void(std::size_t sentence, Hypothesis found)>;

/// Beam search for as many sentences as there are limits, all at once; `model` has one row for each. A
/// sentence that is finished leaves the model.
/// Throws:  Error if a logit is not a number, or no token of a row has a finite one
/// Source:  length penalty: Wu et al. 2016, arXiv:1609.08144, section 7
void search_beams(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                  const Finished& finished);

/// The search with every next token drawn, for sentence i from randoms[i]. Throws: the same
void search_samples(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                    const SamplingConfig& sampling, std::vector<Generator>& randoms,
                    const Finished& finished);

}  // namespace tapeformer
