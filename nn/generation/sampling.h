#pragma once

#include <tapeformer/autograd/random.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

struct SamplingConfig {
  double temperature = 1;  ///< divides the logits: below 1 favours what is likely; 0 takes the likeliest
  Index top_k = 0;         ///< draw among the so many likeliest tokens; 0 for all
  double top_p = 1;        ///< and of those among the likeliest that together have this probability
  double min_p = 0;        ///< and of those whose probability is at least so many times the highest one's
  /// From 1e-6 to 1e6: logits of tokens seen are divided by it if positive, else multiplied.
  double repetition_penalty = 1;
  std::uint64_t seed = 0, stream = 0;  ///< source i draws from stream + i of the seed

  /// Throws: Error naming what is out of range.
  void check() const;
};

/// The highest of the logits of a next token.
/// Throws:  Error in the name of `op` if one is no number, or the highest is not finite
template <class T>
T highest_logit(const char* op, const T* logits, Index vocabulary);

/// Draws a token; takes one number from `random`, or none at temperature 0. Of equally likely tokens the
/// first count as likelier. Knows nothing of tokens seen: their logits are made smaller before.
/// Math:    p = softmax(logits / temperature), cut to the top_k likeliest, then to the fewest of those whose
///          share reaches top_p, then to those with p >= min_p max p
/// Throws:  Error if a logit is no number, or no token has a finite one
/// Source:  top-k: Fan et al. 2018, arXiv:1805.04833; top-p: Holtzman et al. 2020, arXiv:1904.09751;
///          min-p: Nguyen et al. 2024, arXiv:2407.01082
template <class T>
Index sample_token(const T* logits, Index vocabulary, const SamplingConfig& config, Generator& random);

/// Makes the tokens that a text has already less likely.
/// Math:    logit / penalty if it is positive, else logit * penalty, once for every token seen
/// Source:  Keskar et al. 2019, arXiv:1909.05858, section 4.1
class RepetitionPenalty {
 public:
  explicit RepetitionPenalty(double penalty) : penalty_(penalty) {}
  void see(std::int32_t token);
  /// The token numbers seen must be within the logits.
  template <class T>
  void apply(T* logits) const;

 private:
  double penalty_;
  std::vector<std::int32_t> seen_;  // in order, each once
};

}  // namespace tapeformer
