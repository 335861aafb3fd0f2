#include <tapeformer/autograd/error.h>
#include <tapeformer/nn/sampling.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace tapeformer {

void SamplingConfig::check() const {
  if (temperature > 0 && top_k >= 0 && top_p > 0 && top_p <= 1) return;
  throw Error(
      "[sample] temperature must be positive, top_k not negative, and top_p in (0, 1]; got temperature=" +
      std::to_string(temperature) + ", top_k=" + std::to_string(top_k) + ", top_p=" + std::to_string(top_p) +
      "; try a beam of 1 for the likeliest token");
}

template <class T>
Index sample_token(const T* logits, Index vocabulary, const SamplingConfig& config, Generator& random) {
  PooledVector<Index> tokens(static_cast<std::size_t>(vocabulary));
  std::iota(tokens.begin(), tokens.end(), Index{0});
  if (config.top_k > 0 || config.top_p < 1) {
    const Index kept = config.top_k > 0 ? std::min(config.top_k, vocabulary) : vocabulary;
    std::partial_sort(tokens.begin(), tokens.begin() + kept, tokens.end(), [&](Index a, Index b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    });
    tokens.resize(static_cast<std::size_t>(kept));
  }
  const auto highest = static_cast<double>(*std::max_element(logits, logits + vocabulary));
  PooledVector<double> sums;  // of the probabilities up to each token, not normalised
  double sum = 0;
  for (const Index token : tokens) {
    sum += std::exp((static_cast<double>(logits[token]) - highest) / config.temperature);
    sums.push_back(sum);
  }
  if (config.top_p < 1) {
    const auto enough = std::lower_bound(sums.begin(), sums.end(), config.top_p * sum);
    if (enough != sums.end()) sums.erase(enough + 1, sums.end());
  }
  const auto drawn = std::upper_bound(sums.begin(), sums.end(), random.uniform() * sums.back());
  return tokens[static_cast<std::size_t>(std::min(drawn, sums.end() - 1) - sums.begin())];
}

template Index sample_token(const float*, Index, const SamplingConfig&, Generator&);
template Index sample_token(const double*, Index, const SamplingConfig&, Generator&);

}  // namespace tapeformer
