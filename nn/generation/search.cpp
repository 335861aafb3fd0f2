#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/nn/generation/search.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapeformer {
namespace {

double penalised(double log_probability, std::size_t length, const SearchConfig& config) {
  const auto tokens = static_cast<double>(length);
  return log_probability /
         std::pow(config.transformers ? tokens : (5.0 + tokens) / 6.0, config.length_penalty);
}

struct Beam {
  TokenIds tokens;  // from begin on
  double log_probability = 0;
  std::size_t parent = 0;  // the beam that it goes on from
  bool may_end = true;     // here, if this is the limit
};

/// One sentence's search.
struct Search {
  std::size_t sentence = 0;
  Index limit = 0;
  std::vector<Beam> beams;
  std::vector<Hypothesis> best;  // of those that are finished, best first
  Index finished = 0;

  bool at_limit() const { return beams.empty() || static_cast<Index>(beams.front().tokens.size()) > limit; }
  /// `length` counts the end token if the hypothesis has one, but not the begin token.
  void finish(const Beam& beam, std::size_t length, const SearchConfig& config) {
    const double score = penalised(beam.log_probability, length, config);
    ++finished;
    const auto place =
        std::find_if(best.begin(), best.end(), [&](const Hypothesis& other) { return score > other.score; });
    best.insert(place,
                {TokenIds(beam.tokens.begin() + 1, beam.tokens.end()), beam.log_probability, score, {}});
    if (static_cast<Index>(best.size()) > (config.transformers ? config.beam : config.n_best))
      best.pop_back();
  }
  Hypothesis result(const SearchConfig& config) {
    Hypothesis first = std::move(best.front());
    const auto count = std::min(best.size(), static_cast<std::size_t>(config.n_best));
    first.others.assign(best.begin() + 1, best.begin() + static_cast<std::ptrdiff_t>(count));
    return first;
  }
};

struct Candidate {
  double log_probability;
  std::size_t beam;
  std::int32_t token;
  bool operator<(const Candidate& other) const {  // best first, ties by position: deterministic
    if (log_probability != other.log_probability) return log_probability > other.log_probability;
    return beam != other.beam ? beam < other.beam : token < other.token;
  }
};

/// The `count` best continuations of all beams. `rows` holds a row of log-probabilities for each beam.
std::vector<Candidate> best_candidates(const std::vector<Beam>& beams, const double* rows, Index vocabulary,
                                       std::size_t count) {
  std::vector<Candidate> best;
  double enough = std::numeric_limits<double>::lowest();  // below the worst of a full `best`, or impossible
  for (std::size_t beam = 0; beam < beams.size(); ++beam) {
    const double* row = rows + static_cast<Index>(beam) * vocabulary;
    const double so_far = beams[beam].log_probability;
    for (Index token = 0; token < vocabulary; ++token) {
      const double log_probability = so_far + row[token];
      if (log_probability < enough) continue;
      const Candidate candidate{log_probability, beam, static_cast<std::int32_t>(token)};
      best.insert(std::upper_bound(best.begin(), best.end(), candidate), candidate);
      if (best.size() > count) best.pop_back();
      if (best.size() == count) enough = best.back().log_probability;
    }
  }
  return best;
}

/// The most that the best beam can still score. `longest` is the length of an output at the limit.
double best_to_come(const Search& search, const SearchConfig& config, std::size_t longest) {
  const Beam& first = search.beams.front();
  const std::size_t present = first.tokens.size() - (config.transformers ? 1 : 0);
  // The penalty favours the longest output, or below 0 the next end.
  const bool at_longest = config.transformers ? config.transformers->early_stopping == EarlyStopping::never &&
                                                    config.length_penalty > 0
                                              : config.length_penalty >= 0;
  return penalised(first.log_probability, at_longest ? longest : present, config);
}

/// True if no beam needs to go on, by the outputs that are there.
bool has_enough(const Search& search, const SearchConfig& config) {
  const auto limit = static_cast<std::size_t>(search.limit);
  if (!config.transformers) {
    if (search.finished >= config.beam) return true;
    if (static_cast<Index>(search.best.size()) < config.n_best || config.beam == 1) return false;
    return search.best.back().score >= best_to_come(search, config, limit);
  }
  const TransformersRules& rules = *config.transformers;
  if (search.finished < config.beam) return false;
  return config.beam == 1 || rules.early_stopping == EarlyStopping::yes ||
         search.best.back().score >= best_to_come(search, config, limit + (rules.forced_end ? 1 : 0));
}

/// Extends every beam by a token. Returns whether the sentence goes on.
bool advance(Search& search, const double* rows, Index vocabulary, const SearchConfig& config) {
  const auto width = static_cast<std::size_t>(config.beam);
  std::vector<Beam> next;
  std::size_t rank = 0;
  for (const Candidate& candidate : best_candidates(search.beams, rows, vocabulary, 2 * width)) {
    const bool may_end = !config.transformers || rank++ < width;
    if (next.size() == width) break;
    Beam beam = search.beams[candidate.beam];
    beam.log_probability = candidate.log_probability;
    beam.parent = candidate.beam;
    if (candidate.token == config.end) {
      if (may_end) search.finish(beam, beam.tokens.size(), config);
      continue;
    }
    beam.tokens.push_back(candidate.token);
    beam.may_end = may_end;
    next.push_back(std::move(beam));
  }
  search.beams = std::move(next);
  if (!search.at_limit()) return !has_enough(search, config);
  const bool forced = config.transformers && config.transformers->forced_end;
  if (forced && !search.beams.empty() && has_enough(search, config)) return false;
  for (const Beam& beam : search.beams)
    if (beam.may_end || forced) search.finish(beam, beam.tokens.size() - (forced ? 0 : 1), config);
  return false;
}

/// Takes the tokens that never come out of a row of log probabilities.
void forbid(const SearchConfig& config, double* row, Index vocabulary) {
  double share = 0;
  for (const std::int32_t token : config.never) {
    share += std::exp(row[token]);
    row[token] = -std::numeric_limits<double>::infinity();
  }
  if (!config.renormalize) return;
  const double rest = std::log1p(-share);
  std::for_each(row, row + vocabulary, [&](double& log_probability) { log_probability -= rest; });
}

/// Runs the model until no sentence is active. `advance_one(search, log p of its first beam, V)` extends a
/// sentence's beams and returns whether it goes on.
template <class Advance>
void run_searches(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                  const Finished& finished, const Advance& advance_one) {
  std::vector<Search> active(limits.size());
  for (std::size_t i = 0; i < limits.size(); ++i) {
    active[i].sentence = i;
    active[i].limit = limits[i];
    active[i].beams = {Beam{{config.begin}}};
  }
  TokenIds tokens(active.size(), config.begin);
  std::vector<std::int32_t> rows;
  while (!active.empty()) {
    const Tensor logits = model.step(tokens);
    const Tensor log_p = log_softmax(logits.to(wide(logits.dtype()))).to(Device::cpu()).to(DType::f64);
    const Index vocabulary = log_p.size(-1);
    for (Index row = 0; row < log_p.size(0); ++row)
      forbid(config, log_p.data<double>() + row * vocabulary, vocabulary);
    std::vector<Search> still_active;
    tokens.clear();
    rows.clear();
    std::size_t first = 0;  // row of the sentence's first beam
    for (Search& search : active) {
      const std::size_t width = search.beams.size();
      if (advance_one(search, log_p.data<double>() + static_cast<Index>(first) * vocabulary, vocabulary)) {
        for (const Beam& beam : search.beams) {
          rows.push_back(static_cast<std::int32_t>(first + beam.parent));
          tokens.push_back(beam.tokens.back());
        }
        still_active.push_back(std::move(search));
      } else {
        finished(search.sentence, search.result(config));
      }
      first += width;
    }
    active = std::move(still_active);
    if (!active.empty()) model.reorder(rows);
  }
}

}  // namespace

void search_beams(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                  const Finished& finished) {
  run_searches(model, limits, config, finished, [&](Search& search, const double* rows, Index vocabulary) {
    for (std::size_t beam = 0; beam < search.beams.size(); ++beam)
      highest_logit("beam_search", rows + static_cast<Index>(beam) * vocabulary, vocabulary);
    return advance(search, rows, vocabulary, config);
  });
}

void search_samples(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                    const SamplingConfig& sampling, std::vector<Generator>& randoms,
                    const Finished& finished) {
  sampling.check();
  if (sampling.repetition_penalty != 1)
    throw Error(format("[sample] a repetition_penalty is for continuing texts; got {}; try 1",
                       sampling.repetition_penalty));
  run_searches(model, limits, config, finished, [&](Search& search, const double* row, Index vocabulary) {
    const Index token = sample_token(row, vocabulary, sampling, randoms[search.sentence]);
    Beam& beam = search.beams.front();
    beam.log_probability += row[token];
    const bool has_ended = token == config.end;
    if (!has_ended) beam.tokens.push_back(static_cast<std::int32_t>(token));
    if (!has_ended && !search.at_limit()) return true;
    search.finish(beam, beam.tokens.size() - (has_ended ? 0 : 1), config);
    return false;
  });
}

}  // namespace tapeformer
