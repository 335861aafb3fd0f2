#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/tape.h>
#include <tapeformer/nn/generate.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace tapeformer {
namespace {

struct Beam {
  TokenIds tokens;  // from begin on
  double log_probability = 0;
};

/// One sentence's search.
struct Search {
  std::size_t source = 0;  // position in the caller's list
  Index row = 0;           // in the encoder's output
  Index limit = 0;
  std::vector<Beam> beams;
  Hypothesis best;
  bool has_best = false;
  Index finished = 0;

  bool at_limit() const { return beams.empty() || static_cast<Index>(beams.front().tokens.size()) > limit; }
  double score(double log_probability, std::size_t length, double alpha) const {
    return log_probability / std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha);
  }
  /// `length` counts the end token if the hypothesis has one, but not the begin token.
  void finish(const Beam& beam, std::size_t length, double alpha) {
    const double value = score(beam.log_probability, length, alpha);
    ++finished;
    if (has_best && value <= best.score) return;
    best = {TokenIds(beam.tokens.begin() + 1, beam.tokens.end()), beam.log_probability, value};
    has_best = true;
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

/// The `count` best continuations of all beams. `rows` holds log-probabilities, one row of the vocabulary a
/// beam.
std::vector<Candidate> best_candidates(const std::vector<Beam>& beams, const float* rows, Index vocabulary,
                                       std::size_t count) {
  std::vector<Candidate> best;
  for (std::size_t beam = 0; beam < beams.size(); ++beam) {
    const float* row = rows + static_cast<Index>(beam) * vocabulary;
    for (Index token = 0; token < vocabulary; ++token) {
      const Candidate candidate{beams[beam].log_probability + static_cast<double>(row[token]), beam,
                                static_cast<std::int32_t>(token)};
      if (best.size() == count && !(candidate < best.back())) continue;
      best.insert(std::upper_bound(best.begin(), best.end(), candidate), candidate);
      if (best.size() > count) best.pop_back();
    }
  }
  return best;
}

/// Extends every beam by a token; sentences that are done leave `active`.
void advance(Search& search, const float* rows, Index vocabulary, const SearchConfig& config) {
  const auto width = static_cast<std::size_t>(config.beam);
  std::vector<Beam> next;
  for (const Candidate& candidate : best_candidates(search.beams, rows, vocabulary, 2 * width)) {
    if (next.size() == width) break;
    Beam beam = search.beams[candidate.beam];
    beam.log_probability = candidate.log_probability;
    if (candidate.token == config.end) {
      search.finish(beam, beam.tokens.size(), config.length_penalty);
      continue;
    }
    beam.tokens.push_back(candidate.token);
    next.push_back(std::move(beam));
  }
  search.beams = std::move(next);
  if (search.at_limit()) {
    for (const Beam& beam : search.beams) search.finish(beam, beam.tokens.size() - 1, config.length_penalty);
  }
}

bool is_done(const Search& search, const SearchConfig& config) {
  return search.at_limit() || search.finished >= config.beam ||
         (search.has_best && config.beam > 1 &&
          search.best.score >= search.score(search.beams.front().log_probability,
                                            static_cast<std::size_t>(search.limit), config.length_penalty));
}

/// Source ids with their end token, padded, and the mask of what is a token.
std::pair<Tensor, Tensor> source_batch(const std::vector<TokenIds>& sources,
                                       const std::vector<std::size_t>& order, const SearchConfig& config) {
  std::size_t longest = 0;
  for (const std::size_t i : order) longest = std::max(longest, sources[i].size() + 1);
  const Shape shape{static_cast<Index>(order.size()), static_cast<Index>(longest)};
  const Tensor ids = Tensor::full(shape, config.padding, DType::i32),
               mask = Tensor::full(shape, 0, DType::boolean);
  for (std::size_t row = 0; row < order.size(); ++row) {
    const TokenIds& source = sources[order[row]];
    std::int32_t* to = ids.data<std::int32_t>() + row * longest;
    std::copy(source.begin(), source.end(), to);
    to[source.size()] = config.end;
    std::fill_n(mask.data<bool>() + row * longest, source.size() + 1, true);
  }
  return {ids, mask};
}

/// For every beam of every active sentence, the row of its sentence in the encoder's output.
std::vector<std::int32_t> rows_of(const std::vector<Search>& active) {
  std::vector<std::int32_t> rows;
  for (const Search& search : active) {
    rows.insert(rows.end(), search.beams.size(), static_cast<std::int32_t>(search.row));
  }
  return rows;
}

/// The rows of x [N, ...], copied.
Tensor picked_rows(const Tensor& x, const std::vector<std::int32_t>& rows) {
  Shape shape = x.shape();
  shape.set(0, static_cast<Index>(rows.size()));
  const Tensor picked = Tensor::empty(shape, x.dtype());
  const auto width = static_cast<std::size_t>(x.bytes() / x.size(0));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::memcpy(static_cast<char*>(picked.raw()) + i * width,
                static_cast<const char*>(x.raw()) + static_cast<std::size_t>(rows[i]) * width, width);
  }
  return picked;
}

/// Log-probabilities f32 [beams of all active sentences, V] of the next token.
Tensor next_log_probabilities(const EncoderDecoder& model, const std::vector<Search>& active,
                              const Tensor& memory, const Tensor& mask) {
  std::vector<std::int32_t> ids;
  for (const Search& search : active) {
    for (const Beam& beam : search.beams) ids.insert(ids.end(), beam.tokens.begin(), beam.tokens.end());
  }
  const auto length = static_cast<Index>(active.front().beams.front().tokens.size());
  const Tensor targets = Tensor::from(ids, {static_cast<Index>(ids.size()) / length, length});
  const Tensor states_rtc = model.decode(targets, memory, mask);
  return log_softmax(model.logits(slice(states_rtc, 1, length - 1, 1))).to(DType::f32);
}

}  // namespace

std::vector<Hypothesis> beam_search(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                                    const SearchConfig& config) {
  if (config.beam < 1 || config.batch < 1) {
    throw Error("[beam_search] beam and batch must be at least 1; got beam=" + std::to_string(config.beam) +
                ", batch=" + std::to_string(config.batch));
  }
  const RecordingPause pause;
  const Index longest = model.config().max_length - 1;
  for (const TokenIds& source : sources) {
    if (!source.empty() && static_cast<Index>(source.size()) <= longest) continue;
    throw ShapeError("[beam_search] a source must have 1 to " + std::to_string(longest) + " tokens; got " +
                     std::to_string(source.size()) +
                     "; try shorter sentences or a model with a larger max_length");
  }
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[a].size() < sources[b].size(); });

  std::vector<Hypothesis> results(sources.size());
  Index done = 0;
  for (std::size_t from = 0; from < order.size(); from += static_cast<std::size_t>(config.batch)) {
    const std::size_t to = std::min(order.size(), from + static_cast<std::size_t>(config.batch));
    const std::vector<std::size_t> part(order.begin() + static_cast<std::ptrdiff_t>(from),
                                        order.begin() + static_cast<std::ptrdiff_t>(to));
    const auto [ids, mask] = source_batch(sources, part, config);
    const Tensor memory = model.encode(ids, mask);
    std::vector<Search> active;
    for (std::size_t row = 0; row < part.size(); ++row) {
      Search search;
      search.source = part[row];
      search.row = static_cast<Index>(row);
      const auto wanted =
          config.max_tokens > 0 ? config.max_tokens : 2 * static_cast<Index>(sources[part[row]].size()) + 10;
      search.limit = std::min(wanted, longest);
      search.beams = {Beam{{config.begin}, 0}};
      active.push_back(std::move(search));
    }
    Tensor memory_rows, mask_rows;
    std::vector<std::int32_t> rows;
    while (!active.empty()) {
      if (std::vector<std::int32_t> now = rows_of(active); now != rows) {
        rows = std::move(now);
        memory_rows = picked_rows(memory, rows);
        mask_rows = picked_rows(mask, rows);
      }
      const Tensor log_p = next_log_probabilities(model, active, memory_rows, mask_rows);
      const Index vocabulary = log_p.size(-1);
      const float* row = log_p.data<float>();
      std::vector<Search> still_active;
      for (Search& search : active) {
        const auto width = static_cast<Index>(search.beams.size());
        advance(search, row, vocabulary, config);
        row += width * vocabulary;
        if (is_done(search, config)) {
          results[search.source] = search.best;
          ++done;
        } else {
          still_active.push_back(std::move(search));
        }
      }
      if (config.progress && still_active.size() < active.size()) config.progress(done);
      active = std::move(still_active);
    }
  }
  return results;
}

}  // namespace tapeformer
