#pragma once

#include <tapeformer/autograd/shape.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

/// Corpus BLEU and its components.
struct BleuScore {
  double score = 0;                    ///< BLEU, from 0 to 100
  std::array<double, 4> precisions{};  ///< the precisions of n-grams of 1 to 4 words, in percent
  double brevity_penalty = 1;          ///< below 1 if hypotheses are shorter than references, else 1
  /// The lengths of all hypotheses and of all references, in words.
  Index hypothesis_length = 0, reference_length = 0;

  /// "BLEU|nrefs:1|... = 35.21 66.1/42.0/28.4/19.5 (BP = 1.000 ratio = 1.010 hyp_len = 505 ref_len = 500)".
  std::string text() const;
};

/// sacreBLEU's signature of how BLEU was computed.
std::string bleu_signature();

/// BLEU of a corpus with one reference per sentence, cased, tokenised as by mteval-v13a, n-grams up to 4; an
/// order without a match counts as 1/2, 1/4, ... of one. Agrees with sacreBLEU 2's defaults.
/// Math:    100 min(1, exp(1 - r/h)) (p1 p2 p3 p4)^(1/4), p_n clipped n-gram precision over the corpus
/// Throws:  DataError if the counts differ or there are no sentences
/// Source:  Papineni et al. 2002, P02-1040; smoothing: Chen and Cherry 2014, W14-3346, method 3
BleuScore corpus_bleu(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

/// chrF2 of a corpus in percent: characters without white space, n-grams up to 6, recall weighted twice.
/// Agrees with sacreBLEU 2's defaults.
/// Math:    100 * 5 P R / (4 P + R), P and R averaged over the orders that both sides have
/// Throws:  DataError if the counts differ or there are no sentences
/// Source:  Popović 2015, W15-3049
double corpus_chrf(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

/// The share of hypotheses that equal their reference byte by byte, in percent.
/// Throws:  DataError if the counts differ or there are no sentences
double exact_match(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references);

/// The tokens that mteval-v13a's tokeniser makes of a line, with a space between them.
std::string tokenize_13a(std::string_view line);

}  // namespace tapeformer
