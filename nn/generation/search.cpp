#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/cpu/parallel.h>
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
  std::size_t parent = 0;  // the beam that it extends
  bool may_end = true;     // at this length, if it is the limit
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

/// The log probabilities of a row's next tokens, by their places.
template <class T>
struct Row {
  const NextTokens& next;
  Index row;
  T* values;
  double removed = 0;  // from all of them
  double operator[](Index place) const { return values[place] - removed; }
  std::int32_t token(Index place) const { return next.token(row, place); }
};

/// The `count` best continuations of all beams, which have a row each.
template <class T>
std::vector<Candidate> best_candidates(const std::vector<Beam>& beams, const Row<T>* rows,
                                       std::size_t count) {
  std::vector<Candidate> best;
  for (std::size_t beam = 0; beam < beams.size(); ++beam) {
    const Row<T>& row = rows[beam];
    const T* const values = row.values;
    const auto places = likeliest(values, row.next.count(), static_cast<Index>(count));
    if (places.empty()) highest_logit("beam_search", values, row.next.count());  // which throws
    for (const Index place : places)
      best.push_back({beams[beam].log_probability + row[place], beam, row.token(place)});
  }
  std::sort(best.begin(), best.end());
  best.resize(std::min(best.size(), count));
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

/// True if the finished outputs make further steps unnecessary.
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

/// Extends every beam by a token. Returns whether the sentence continues.
template <class T>
bool advance(Search& search, const Row<T>* rows, const SearchConfig& config) {
  const auto width = static_cast<std::size_t>(config.beam);
  std::vector<Beam> next;
  std::size_t rank = 0;
  for (const Candidate& candidate : best_candidates(search.beams, rows, 2 * width)) {
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

/// The tokens that may not follow `tokens`, the begin included.
TokenIds forbidden_after(const TokenIds& tokens, const SearchConfig& config) {
  TokenIds forbidden = config.never;
  if (static_cast<Index>(tokens.size()) <= config.min_tokens) forbidden.push_back(config.end);
  const auto n = static_cast<std::size_t>(config.no_repeat_ngram);
  if (n == 0 || tokens.size() < n) return forbidden;
  const auto last = tokens.end() - static_cast<std::ptrdiff_t>(n - 1);
  for (auto at = tokens.begin(); at != last; ++at)
    if (std::equal(last, tokens.end(), at)) forbidden.push_back(at[static_cast<std::ptrdiff_t>(n - 1)]);
  return forbidden;
}

/// The log of the sum of probabilities.
template <class T>
double log_sum(const T* log_p, Index count) {
  const double highest = *std::max_element(log_p, log_p + count);
  double sum = 0;
  for (Index i = 0; i < count; ++i) sum += std::exp(log_p[i] - highest);
  return highest + std::log(sum);
}

/// A row of log probabilities without the tokens that may not follow a beam.
template <class T>
Row<T> allowed(const Beam& beam, const SearchConfig& config, const NextTokens& next, Index row) {
  T* const values = next.values.data<T>() + row * next.count();
  double share = 0;
  for (const std::int32_t token : forbidden_after(beam.tokens, config)) {
    const Index place = next.place(row, token);
    if (place < 0) continue;  // unlikely, or from a tokenizer with more tokens than the model
    share += std::exp(static_cast<double>(values[place]));
    values[place] = -std::numeric_limits<T>::infinity();
  }
  if (!config.renormalize) return {next, row, values};
  return {next, row, values, share < 0.5 ? std::log1p(-share) : log_sum(values, next.count())};
}

/// The number of a step's likeliest tokens among which are the `count` likeliest allowed ones; 0 for all.
Index likeliest_with_forbidden(Index count, std::size_t length, const SearchConfig& config) {
  if (count == 0 || count > std::numeric_limits<std::int32_t>::max() || config.renormalize) return 0;
  return count + static_cast<Index>(config.never.size() + 1 + (config.no_repeat_ngram > 0 ? length : 0));
}

/// Runs the model until no sentence is active. advance_one(search, row of its first beam) extends a
/// sentence's beams by one of their `count` likeliest tokens, or by any if it is 0, on any thread, and
/// returns whether it continues.
template <class Advance>
void run_searches(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                  const Finished& finished, Index count, const Advance& advance_one) {
  std::vector<Search> active(limits.size());
  TokenIds begun = config.forced;
  begun.insert(begun.begin(), config.begin);
  for (std::size_t i = 0; i < limits.size(); ++i) {
    active[i].sentence = i;
    active[i].limit = limits[i];
    active[i].beams = {Beam{begun}};
    if (active[i].at_limit()) active[i].finish(active[i].beams[0], begun.size(), config);
  }
  TokenIds tokens(active.size(), config.begin);
  for (const std::int32_t token : config.forced) {
    model.step(tokens);
    tokens.assign(active.size(), token);
  }
  std::vector<std::int32_t> rows;
  const auto advance_all = [&](const NextTokens& next, auto zero) {
    std::vector<Row<decltype(zero)>> of_beams;
    std::vector<std::size_t> first;  // row of each sentence's first beam
    for (const Search& search : active) {
      first.push_back(of_beams.size());
      for (const Beam& beam : search.beams)
        of_beams.push_back(allowed<decltype(zero)>(beam, config, next, static_cast<Index>(of_beams.size())));
    }
    std::vector<char> goes_on(active.size());
    kernels::parallel_ranges(static_cast<Index>(active.size()), next.count(), [&](Index from, Index to) {
      for (auto i = static_cast<std::size_t>(from); i < static_cast<std::size_t>(to); ++i)
        goes_on[i] = !active[i].at_limit() && advance_one(active[i], of_beams.data() + first[i]);
    });
    std::vector<Search> still_active;
    tokens.clear();
    rows.clear();
    for (std::size_t i = 0; i < active.size(); ++i) {
      Search& search = active[i];
      if (!goes_on[i]) {
        finished(search.sentence, search.result(config));
        continue;
      }
      for (const Beam& beam : search.beams) {
        rows.push_back(static_cast<std::int32_t>(first[i] + beam.parent));
        tokens.push_back(beam.tokens.back());
      }
      still_active.push_back(std::move(search));
    }
    active = std::move(still_active);
  };
  while (!active.empty()) {
    const Tensor logits = model.step(tokens);
    const std::size_t length = active.front().beams.front().tokens.size();
    const NextTokens next = read_next_tokens(log_softmax(logits.to(wide(logits.dtype()))),
                                             likeliest_with_forbidden(count, length, config));
    if (next.values.dtype() == DType::f32)
      advance_all(next, float{});
    else
      advance_all(next, double{});
    if (!active.empty()) model.reorder(rows);
  }
}

}  // namespace

void search_beams(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                  const Finished& finished) {
  run_searches(model, limits, config, finished, 2 * config.beam,
               [&](Search& search, const auto* rows) { return advance(search, rows, config); });
}

void search_samples(NextTokenModel& model, const std::vector<Index>& limits, const SearchConfig& config,
                    const SamplingConfig& sampling, std::vector<Generator>& randoms,
                    const Finished& finished) {
  sampling.check();
  if (sampling.repetition_penalty != 1)
    throw Error(format("[sample] a repetition_penalty is for continuing texts; got {}; try 1",
                       sampling.repetition_penalty));
  const auto draw = [&](Search& search, const auto* of_beam) {
    const auto& row = *of_beam;
    const Index count = row.next.count();
    PooledVector<double> values(static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = row[i];
    const Index place = sample_token(values.data(), count, sampling, randoms[search.sentence]);
    Beam& beam = search.beams.front();
    beam.log_probability += row[place];
    const std::int32_t token = row.token(place);
    const bool has_ended = token == config.end;
    if (!has_ended) beam.tokens.push_back(token);
    if (!has_ended && !search.at_limit()) return true;
    search.finish(beam, beam.tokens.size() - (has_ended ? 0 : 1), config);
    return false;
  };
  run_searches(model, limits, config, finished, likeliest_needed(sampling), draw);
}

}  // namespace tapeformer
