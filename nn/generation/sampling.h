#pragma once

#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/storage.h>

#include <cstdint>
#include <vector>

namespace tapeformer {

struct SamplingConfig {
  double temperature = 1;  ///< divides the logits: below 1 favours likely tokens; 0 takes the likeliest
  Index top_k = 0;         ///< draw among this many of the likeliest tokens; 0 for all
  double top_p = 1;        ///< then among the likeliest that together have this probability
  double min_p = 0;        ///< then among those with at least this share of the highest probability
  /// From 1e-6 to 1e6: logits of tokens already seen are divided by it if positive, else multiplied.
  double repetition_penalty = 1;
  std::uint64_t seed = 0, stream = 0;  ///< source i draws from stream + i of the seed

  /// Throws: Error naming what is out of range.
  void check() const;
};

/// Numbers of the next token of each row, on the CPU: of every token, or of some of the likeliest.
struct NextTokens {
  Tensor values;  ///< [R, K]: logits or log probabilities, f32 or f64
  Tensor tokens;  ///< i32 [R, K], ascending in a row; undefined if K is the vocabulary

  /// The number of rows, R.
  Index rows() const { return values.size(0); }
  /// The number of tokens per row, K.
  Index count() const { return values.size(1); }
  /// The token at a place of a row.
  std::int32_t token(Index row, Index place) const;
  /// The place of a token in a row; -1 if it is not there.
  Index place(Index row, std::int32_t token) const;
};

/// Reads logits or log probabilities. On a GPU the `count` likeliest tokens of a large vocabulary are chosen
/// there; elsewhere, and with a count of 0, rows are whole. A row with NaN keeps one, or an infinity before
/// it.
/// Shapes:  logits [R, V]
NextTokens read_next_tokens(const Tensor& logits, Index count);

/// The highest logit of the next token, in f32 or f64.
/// Throws:  Error in the name of `op` if one is NaN, or the highest is not finite
template <class T>
double highest_logit(const char* op, const T* logits, Index vocabulary);

/// The `count` likeliest tokens, in no particular order, without those whose logit is minus infinity. Of
/// equally likely tokens the first count as likelier. Either no logit or every logit may be NaN; in
/// the latter case no token is returned.
template <class T>
PooledVector<Index> likeliest(const T* logits, Index vocabulary, Index count);

/// Draws a token. Takes one number from `random`, or none at temperature 0. Of equally likely tokens the
/// first counts as likelier. A repetition penalty is applied to the logits before.
/// Math:    p = softmax(logits / temperature), cut to the top_k likeliest, then to the fewest of those whose
///          share reaches top_p, then to those with p >= min_p max p
/// Throws:  Error if a logit is NaN, or no token has a finite one
/// Source:  top-k: Fan et al. 2018, arXiv:1805.04833; top-p: Holtzman et al. 2020, arXiv:1904.09751;
///          min-p: Nguyen et al. 2024, arXiv:2407.01082
Index sample_token(const double* logits, Index vocabulary, const SamplingConfig& config, Generator& random);

/// The number of the likeliest tokens that sample_token() draws from; 0 for all.
inline Index likeliest_needed(const SamplingConfig& config) {
  return config.temperature == 0 ? 1 : config.top_k;
}

/// Makes tokens less likely that are already in the text.
/// Math:    logit / penalty if it is positive, else logit * penalty, once for every token seen
/// Source:  Keskar et al. 2019, arXiv:1909.05858, section 4.1
class RepetitionPenalty {
 public:
  /// A penalty of 1 changes nothing.
  explicit RepetitionPenalty(double penalty) : penalty_(penalty) {}
  /// False if apply() does nothing.
  bool changes() const { return penalty_ != 1; }
  /// Counts a token as seen.
  void see(std::int32_t token);
  /// The token numbers seen must be within the logits.
  void apply(double* logits) const;

 private:
  double penalty_;
  std::vector<std::int32_t> seen_;  // ascending, each once
};

}  // namespace tapeformer
