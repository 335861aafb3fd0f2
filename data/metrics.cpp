#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/data/metrics.h>
#include <tapeformer/data/tokenizers/utf8.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <utility>

namespace tapeformer {
namespace {

constexpr std::size_t kWordOrders = 4, kCharacterOrders = 6;

void check_counts(const char* op, const std::vector<std::string>& hypotheses,
                  const std::vector<std::string>& references) {
  if (!hypotheses.empty() && hypotheses.size() == references.size()) return;
  throw DataError(format("[{}] every sentence needs one hypothesis and one reference; got {}, {}", op,
                         number_of(hypotheses.size(), "hypothesis", "hypotheses"),
                         number_of(references.size(), "reference")));
}

/// The substitutions of mteval-v13a, in their order. Punctuation is always a token, except for ' - . and a
/// comma: a stop or a comma stays only inside a number, and a dash is split only from a digit before it.
const std::vector<std::pair<std::regex, std::string>>& rules_13a() {
  static const std::vector<std::pair<std::regex, std::string>> rules = {
      {std::regex("<skipped>"), ""},
      {std::regex("-\n"), ""},
      {std::regex("\n"), " "},
      {std::regex("&quot;"), "\""},
      {std::regex("&amp;"), "&"},
      {std::regex("&lt;"), "<"},
      {std::regex("&gt;"), ">"},
      {std::regex(R"([{-~[-` -&(-+:-@/])"), " $& "},
      {std::regex(R"(([^0-9])([.,]))"), "$1 $2 "},
      {std::regex(R"(([.,])([^0-9]))"), " $1 $2"},
      {std::regex(R"(([0-9])(-))"), "$1 $2 "}};
  return rules;
}

/// Counts of one sentence's n-grams, by order, of `units` that are consecutive parts of one string.
template <std::size_t Orders>
auto count_ngrams(const std::vector<std::string_view>& units) {
  std::array<std::map<std::string_view, Index>, Orders> counts;
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (std::size_t n = 0; n < Orders && i + n < units.size(); ++n) {
      const char* end = units[i + n].data() + units[i + n].size();
      ++counts[n][{units[i].data(), static_cast<std::size_t>(end - units[i].data())}];
    }
  }
  return counts;
}

struct Matches {
  double hypothesis = 0, reference = 0, common = 0;
};

/// Adds one sentence's n-gram counts and clipped matches to `total`.
template <std::size_t Orders>
void add_matches(const std::vector<std::string_view>& hypothesis,
                 const std::vector<std::string_view>& reference, std::array<Matches, Orders>& total) {
  const auto ours = count_ngrams<Orders>(hypothesis), theirs = count_ngrams<Orders>(reference);
  for (std::size_t n = 0; n < Orders; ++n) {
    total[n].hypothesis += static_cast<double>(hypothesis.size() > n ? hypothesis.size() - n : 0);
    total[n].reference += static_cast<double>(reference.size() > n ? reference.size() - n : 0);
    for (const auto& [ngram, count] : ours[n]) {
      const auto match = theirs[n].find(ngram);
      if (match != theirs[n].end()) total[n].common += static_cast<double>(std::min(count, match->second));
    }
  }
}

std::string without_white_space(std::string_view line) { return joined(split_white_space(line), ""); }

}  // namespace

std::string tokenize_13a(std::string_view line) {
  std::string text = " " + std::string(line) + " ";
  for (const auto& [pattern, to] : rules_13a()) text = std::regex_replace(text, pattern, to);
  return joined(split_white_space(text), " ");
}

std::string bleu_signature() {
  return "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:tapeformer-0.1.0";
}

std::string BleuScore::text() const {
  const double ratio = reference_length == 0 ? 0 : static_cast<double>(hypothesis_length) / reference_length;
  return "BLEU|" + bleu_signature() + " = " +
         format("{:.2f} {:.1f}/{:.1f}/{:.1f}/{:.1f} (BP = {:.3f} ratio = {:.3f} hyp_len = {} ref_len = {})",
                score, precisions[0], precisions[1], precisions[2], precisions[3], brevity_penalty, ratio,
                hypothesis_length, reference_length);
}

BleuScore corpus_bleu(const std::vector<std::string>& hypotheses,
                      const std::vector<std::string>& references) {
  check_counts("corpus_bleu", hypotheses, references);
  std::array<Matches, kWordOrders> totals;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const std::string hypothesis = tokenize_13a(trim_end(hypotheses[i])),
                      reference = tokenize_13a(trim_end(references[i]));
    add_matches(split_white_space(hypothesis), split_white_space(reference), totals);
  }
  BleuScore bleu;
  bleu.hypothesis_length = static_cast<Index>(totals[0].hypothesis);
  bleu.reference_length = static_cast<Index>(totals[0].reference);
  if (bleu.hypothesis_length < bleu.reference_length) {
    bleu.brevity_penalty =
        bleu.hypothesis_length == 0 ? 0 : std::exp(1 - totals[0].reference / totals[0].hypothesis);
  }
  if (totals[0].common == 0) return bleu;
  double smoothing = 1, log_sum = 0;
  for (std::size_t n = 0; n < kWordOrders; ++n) {
    if (totals[n].hypothesis == 0) return bleu;  // no sentence is long enough: BLEU is zero
    const double matches = totals[n].common > 0 ? totals[n].common : 1 / (smoothing *= 2);
    bleu.precisions[n] = 100 * matches / totals[n].hypothesis;
    log_sum += std::log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity_penalty * std::exp(log_sum / kWordOrders);
  return bleu;
}

double corpus_chrf(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references) {
  check_counts("corpus_chrf", hypotheses, references);
  std::array<Matches, kCharacterOrders> totals;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    const std::string hypothesis = without_white_space(hypotheses[i]),
                      reference = without_white_space(references[i]);
    std::array<Matches, kCharacterOrders> sentence;
    add_matches(split_code_points(hypothesis), split_code_points(reference), sentence);
    for (std::size_t n = 0; n < kCharacterOrders; ++n) {
      // n-grams of an order for which the reference is too short do not count against the hypothesis
      totals[n].hypothesis += sentence[n].reference > 0 ? sentence[n].hypothesis : 0;
      totals[n].reference += sentence[n].reference;
      totals[n].common += sentence[n].common;
    }
  }
  double precision = 0, recall = 0, orders = 0;
  for (const Matches& order : totals) {
    if (order.hypothesis == 0 || order.reference == 0) continue;
    precision += order.common / order.hypothesis;
    recall += order.common / order.reference;
    ++orders;
  }
  if (precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  return 100 * 5 * precision * recall / (4 * precision + recall);
}

double exact_match(const std::vector<std::string>& hypotheses, const std::vector<std::string>& references) {
  check_counts("exact_match", hypotheses, references);
  double equal = 0;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) equal += hypotheses[i] == references[i];
  return 100 * equal / static_cast<double>(hypotheses.size());
}

}  // namespace tapeformer
