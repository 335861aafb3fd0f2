#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/nn/generation/sampling.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tapeformer {
namespace {

struct LikelyToken {
  double weight;  // its probability, relative to the likeliest token's
  Index token;
  bool operator<(const LikelyToken& other) const {  // the likelier first
    return weight != other.weight ? weight > other.weight : token < other.token;
  }
};
using Candidates = PooledVector<LikelyToken>;

// OpenMP's own max may start at the lowest finite number, which is above minus infinity: clang's does.
#pragma omp declare reduction(highest:double \
                              : omp_out = std::max(omp_out, omp_in)) initializer(omp_priv = omp_orig)

/// exp((logit - highest) / temperature), f64 [V].
Tensor relative_weights(const double* logits, Index vocabulary, double highest, double temperature) {
  const Tensor scaled = Tensor::empty({vocabulary}, DType::f64, Device::cpu());
  auto* to = scaled.data<double>();
  for (Index i = 0; i < vocabulary; ++i) to[i] = (logits[i] - highest) / temperature;
  return exp(scaled);
}

double sum_of(const double* values, Index count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) sum += values[i];
  return sum;
}

template <class Iterator>
double sum_of(Iterator from, Iterator to) {
  double sum = 0;
  for (; from != to; ++from) sum += from->weight;
  return sum;
}

/// Moves the smallest set of likeliest candidates that together weigh `enough` to the front, with the least
/// likely of them last, and returns their number. Takes linear time, as it does not sort the others.
std::size_t fewest_that_weigh(double enough, Candidates& candidates) {
  auto first = candidates.begin(), last = candidates.end();
  double before = 0;  // the weight of all before `first`
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last);
    const double sum = before + sum_of(first, middle);
    if (sum >= enough) {
      last = middle;
    } else {
      before = sum;
      first = middle;
    }
  }
  return static_cast<std::size_t>(first - candidates.begin()) + 1;
}

/// The candidates that top_k and top_p leave, perhaps without some that min_p excludes.
Candidates candidates_of(const double* logits, Index vocabulary, double highest,
                         const SamplingConfig& config) {
  Candidates candidates;
  double sum = 0;
  if (config.top_k > 0) {
    const PooledVector<Index> tokens = likeliest(logits, vocabulary, config.top_k);
    candidates.reserve(tokens.size());
    for (const Index token : tokens) {
      const double scaled = (logits[token] - highest) / config.temperature;
      candidates.push_back({std::exp(scaled), token});
    }
    sum = sum_of(candidates.begin(), candidates.end());
  } else {
    const Tensor weights = relative_weights(logits, vocabulary, highest, config.temperature);
    const auto* weight = weights.data<double>();
    sum = sum_of(weight, vocabulary);
    // All tokens below this together weigh less than top_p excludes.
    const double too_little = (1 - config.top_p) * sum / static_cast<double>(vocabulary);
    const double least = std::max(too_little, config.min_p);
    candidates.reserve(static_cast<std::size_t>(vocabulary));
    for (Index i = 0; i < vocabulary; ++i)
      if (weight[i] >= least) candidates.push_back({weight[i], i});
  }
  if (config.top_p < 1) candidates.resize(fewest_that_weigh(config.top_p * sum, candidates));
  return candidates;
}

}  // namespace

void SamplingConfig::check() const {
  const auto require = [](bool holds, const char* rule, double got) {
    if (!holds) throw Error(format("[sample] {}; got {}", rule, got));
  };
  require(temperature >= 0 && std::isfinite(temperature), "temperature must be 0 or positive", temperature);
  require(top_k >= 0, "top_k must be positive, or 0 for all tokens", static_cast<double>(top_k));
  require(top_p > 0 && top_p <= 1, "top_p must be above 0 and at most 1", top_p);
  require(min_p >= 0 && min_p <= 1, "min_p must be in [0, 1]", min_p);
  // A penalty far outside this range makes many logits 0 or infinite.
  require(repetition_penalty >= 1e-6 && repetition_penalty <= 1e6,
          "repetition_penalty must be from 1e-6 to 1e6", repetition_penalty);
}

std::int32_t NextTokens::token(Index row, Index place) const {
  return tokens.defined() ? tokens.data<std::int32_t>()[row * count() + place]
                          : static_cast<std::int32_t>(place);
}

Index NextTokens::place(Index row, std::int32_t token) const {
  if (!tokens.defined()) return token >= 0 && token < count() ? token : -1;
  const std::int32_t *const from = tokens.data<std::int32_t>() + row * count(), *const to = from + count(),
                            *const at = std::lower_bound(from, to, token);
  return at != to && *at == token ? at - from : -1;
}

NextTokens read_next_tokens(const Tensor& logits, Index count) {
  constexpr Index kFew = Index{1} << 17;  // numbers that are copied as fast as they are chosen from
  const Index rows = logits.size(0), vocabulary = logits.size(1);
  const Tensor all = logits.to(wide(logits.dtype()));
  if (!logits.device().is_cuda() || count == 0 || count > vocabulary / 4 || all.elements() < kFew ||
      all.elements() > std::numeric_limits<std::int32_t>::max())
    return {all.to(Device::cpu()), {}};
  const Tensor places = largest_places(all, count);
  const Tensor values = embedding(all.alias({all.elements(), 1}), places).alias(places.shape());
  NextTokens next{values.to(Device::cpu()), places.to(Device::cpu())};
  auto* const token = next.tokens.data<std::int32_t>();
  for (Index i = 0; i < rows * count; ++i) token[i] -= static_cast<std::int32_t>(i / count * vocabulary);
  return next;
}

template <class T>
double highest_logit(const char* op, const T* logits, Index vocabulary) {
  double highest = -std::numeric_limits<double>::infinity();
  int not_numbers = 0;
#pragma omp simd reduction(highest : highest) reduction(+ : not_numbers)
  for (Index i = 0; i < vocabulary; ++i) {
    highest = logits[i] > highest ? logits[i] : highest;
    not_numbers += logits[i] == logits[i] ? 0 : 1;
  }
  if (not_numbers == 0 && std::isfinite(highest)) return highest;
  throw Error(
      format("[{}] the highest logit must be a finite number; got {} among {}; has the model diverged, or is "
             "every token excluded?",
             op, not_numbers > 0 ? NAN : highest, vocabulary));
}

template <class T>
PooledVector<Index> likeliest(const T* logits, Index vocabulary, Index count) {
  constexpr Index kBlock = 128;  // tested together: nearly all blocks have nothing above `enough`
  count = std::min(count, vocabulary);
  PooledVector<Index> best;
  best.reserve(static_cast<std::size_t>(2 * count));
  T enough = -std::numeric_limits<T>::infinity();  // a token at or below this cannot be among them
  const auto cut = [&] {
    const auto last = best.begin() + count - 1;
    std::nth_element(best.begin(), last, best.end(), [&](Index a, Index b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    enough = logits[*last];
    best.erase(last + 1, best.end());
  };
  for (Index first = 0; first < vocabulary; first += kBlock) {
    const Index end = std::min(first + kBlock, vocabulary);
    int above = 0;
#pragma omp simd reduction(+ : above)
    for (Index token = first; token < end; ++token) above += logits[token] > enough ? 1 : 0;
    if (above == 0) continue;
    for (Index token = first; token < end; ++token) {
      if (!(logits[token] > enough)) continue;
      best.push_back(token);
      if (static_cast<Index>(best.size()) == 2 * count) cut();
    }
  }
  if (static_cast<Index>(best.size()) > count) cut();
  return best;
}

template double highest_logit(const char*, const float*, Index);
template double highest_logit(const char*, const double*, Index);
template PooledVector<Index> likeliest(const float*, Index, Index);
template PooledVector<Index> likeliest(const double*, Index, Index);

Index sample_token(const double* logits, Index vocabulary, const SamplingConfig& config, Generator& random) {
  const double highest = highest_logit("sample", logits, vocabulary);
  if (config.temperature == 0) return std::find(logits, logits + vocabulary, highest) - logits;
  if (config.top_k == 0 && config.top_p == 1 && config.min_p == 0) {
    const Tensor weights = relative_weights(logits, vocabulary, highest, config.temperature);
    const auto* weight = weights.data<double>();
    double left = random.uniform() * sum_of(weight, vocabulary);
    Index drawn = 0;
    for (Index i = 0; i < vocabulary && left >= 0; ++i) {
      left -= weight[i];
      if (weight[i] > 0) drawn = i;
    }
    return drawn;
  }
  Candidates candidates = candidates_of(logits, vocabulary, highest, config);
  candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                  [&](const LikelyToken& c) { return c.weight < config.min_p; }),
                   candidates.end());
  const double sum = sum_of(candidates.begin(), candidates.end());
  return candidates[fewest_that_weigh(random.uniform() * sum, candidates) - 1].token;
}

void RepetitionPenalty::see(std::int32_t token) {
  const auto at = std::lower_bound(seen_.begin(), seen_.end(), token);
  if (at == seen_.end() || *at != token) seen_.insert(at, token);
}

void RepetitionPenalty::apply(double* logits) const {
  if (penalty_ == 1) return;
  for (const std::int32_t token : seen_) {
    double& logit = logits[token];
    logit = logit > 0 ? logit / penalty_ : logit * penalty_;
  }
}

}  // namespace tapeformer
