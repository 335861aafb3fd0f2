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

/// A model for a search: rows of tokens that grow by one token at a time.
class NextTokenModel {
 public:
  virtual ~NextTokenModel() = default;
  /// Appends tokens[i] to row i.
  /// Shapes:  -> logits [R, V] of the next token
  virtual Tensor step(const TokenIds& tokens) = 0;
  /// Makes row i a copy of the former row rows[i]; the number of rows may change.
  virtual void reorder(const std::vector<std::int32_t>& rows) = 0;
};

/// When transformers' beam search ends, once it has found as many outputs as there are beams.
enum class EarlyStopping {
  yes,   ///< at once
  no,    ///< as soon as the best beam's score at its present length does not exceed the worst output's
  never  ///< as `no`, with the score at the length that favours the beam most
};
template <>
inline constexpr EnumNames kNames<EarlyStopping>{"early_stopping", {"true", "false", "never"}};

/// Beam search as in transformers' `generate`. A hypothesis scores log p / length^alpha, where the length
/// counts its end; of a step's candidates, only the best ones, as many as there are beams, may end.
struct TransformersRules {
  EarlyStopping early_stopping = EarlyStopping::no;  ///< when a search ends
  bool forced_end = true;  ///< an output of max_tokens gets its end at no cost; otherwise it has none
};

struct SearchConfig {
  Index beam = 1;             ///< hypotheses kept; 1 is greedy search
  Index n_best = 1;           ///< outputs per source, at most `beam`
  double length_penalty = 1;  ///< alpha: a hypothesis scores log p / ((5 + length) / 6)^alpha; 0 for log p
  std::optional<TransformersRules> transformers;  ///< search by these rules instead
  TokenIds never;                                 ///< tokens that no output contains
  TokenIds forced;                                ///< first tokens of every output, at no cost
  Index no_repeat_ngram = 0;  ///< n > 0: no output, its begin included, has the same n tokens twice
  Index min_tokens = 0;       ///< shortest output, forced tokens included
  bool renormalize = false;   ///< shares the probability of excluded tokens among the others
  Index max_tokens = 0;       ///< longest output; 0 for twice the source and ten more, below max_length
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

/// An output and its probability.
struct Hypothesis {
  TokenIds tokens;                      ///< without begin and end, with forced tokens
  double log_probability = 0;           ///< of all tokens and the end, in nats
  double score = 0;                     ///< with the length penalty
  std::vector<Hypothesis> others = {};  ///< the next best, best first: at most n_best - 1
};

/// Called with a sentence's number and its output.
using Finished = std::function<void(std::size_t sentence, Hypothesis found)>;

/// Beam search for as many sentences as there are limits, all at once; `model` has one row for each. A
/// finished sentence leaves the model.
/// Throws:  Error if a logit is NaN, or no token of a row has a finite one
/// Source:  length penalty: Wu et al. 2016, arXiv:1609.08144, section 7
void search_beams(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                  const Finished& finished);

/// As search_beams(), but draws every token, for sentence i from randoms[i].
void search_samples(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                    const SamplingConfig& sampling, std::vector<Generator>& randoms,
                    const Finished& finished);

}  // namespace tapeformer
