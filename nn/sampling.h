#pragma once

#include <tapeformer/autograd/random.h>

namespace tapeformer {

struct SamplingConfig {
  double temperature = 1;  ///< divides the logits: below 1 favours what is likely; 0 takes the likeliest
  Index top_k = 0;         ///< draw among the so many likeliest tokens; 0 for all
  double top_p = 1;        ///< and of those among the likeliest that together have this probability
  double min_p = 0;        ///< and of those whose probability is at least so many times the highest one's
  double repetition_penalty = 1;  ///< logits of tokens seen are divided by it if positive, else multiplied
  std::uint64_t seed = 0, stream = 0;  ///< source i draws from stream + i of the seed

  /// Throws: Error naming what is out of range.
  void check() const;
};

/// Draws a token; takes one number from `random`. Of equally likely tokens the first count as likelier.
/// Math:    p = softmax(logits / temperature), cut to the top_k likeliest, then to the fewest of those whose
///          share reaches top_p
/// Source:  top-k: Fan et al. 2018, arXiv:1805.04833; top-p: Holtzman et al. 2020, arXiv:1904.09751
template <class T>
Index sample_token(const T* logits, Index vocabulary, const SamplingConfig& config, Generator& random);

}  // namespace tapeformer
