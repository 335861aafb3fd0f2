#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/nn/generation/generate.h>
#include <tapeformer/nn/generation/translation_steps.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// Padded source ids with the tokens around them, and their mask, on the CPU.
std::pair<Tensor, Tensor> source_batch(const std::vector<TokenIds>& sources,
                                       const std::vector<std::size_t>& order, const SearchConfig& config) {
  const std::size_t added = config.source_before.size() + 1 + config.source_after.size();
  std::size_t longest = 0;
  for (const std::size_t i : order) longest = std::max(longest, sources[i].size() + added);
  const Shape shape{static_cast<Index>(order.size()), static_cast<Index>(longest)};
  const Tensor ids = Tensor::full(shape, config.padding, DType::i32, Device::cpu()),
               mask = Tensor::full(shape, 0, DType::boolean, Device::cpu());
  for (std::size_t row = 0; row < order.size(); ++row) {
    const TokenIds& source = sources[order[row]];
    std::int32_t* to = ids.data<std::int32_t>() + row * longest;
    for (const TokenIds& part : {config.source_before, source, {config.end}, config.source_after})
      to = std::copy(part.begin(), part.end(), to);
    std::fill_n(mask.data<bool>() + row * longest, source.size() + added, true);
  }
  return {ids, mask};
}

/// Processes the sources in batches of similar length. search(steps, numbers of sources, limits, finished)
/// finds the outputs of a batch.
template <class Search>
std::vector<Hypothesis> in_batches(const char* op, const EncoderDecoder& model,
                                   const std::vector<TokenIds>& sources, const SearchConfig& config,
                                   const Search& search) {
  if (config.beam < 1 || config.n_best < 1 || config.batch < 1)
    throw Error(format("[{}] beam, n_best and batch must be at least 1; got beam={}, n_best={}, batch={}", op,
                       config.beam, config.n_best, config.batch));
  const EncoderDecoderConfig& of = model.config();
  const Index last_position =  // for outputs; 0 for no limit
      of.positions == PositionKind::rotary ? of.layer.attention.rotations.max_positions : 0;
  if (last_position > 0 && config.max_tokens > last_position)
    throw ShapeError(
        format("[{}] the model's rotary positions end after {}; got max_tokens={}; try fewer tokens", op,
               last_position, config.max_tokens));
  const Index most =
      of.max_length - 1 - static_cast<Index>(config.source_before.size() + config.source_after.size());
  for (const TokenIds& source : sources)
    if (static_cast<Index>(source.size()) > most)
      throw ShapeError(
          format("[{}] a source must have at most {}; got {}; try shorter sentences or a model with "
                 "a larger max_length",
                 op, number_of(most, "token"), source.size()));
  const NoGradGuard pause;
  std::vector<std::size_t> order;  // of non-empty sources; the others have empty outputs
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (!sources[i].empty()) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sources[a].size() < sources[b].size(); });

  const Index written = of.max_length - 1;
  const Index longest = last_position > 0 ? std::min(written, last_position) : written;  // by default
  std::vector<Hypothesis> results(sources.size());
  auto done = static_cast<Index>(sources.size() - order.size());
  for (std::size_t from = 0; from < order.size(); from += static_cast<std::size_t>(config.batch)) {
    const std::size_t to = std::min(order.size(), from + static_cast<std::size_t>(config.batch));
    const std::vector<std::size_t> part(order.begin() + static_cast<std::ptrdiff_t>(from),
                                        order.begin() + static_cast<std::ptrdiff_t>(to));
    std::vector<Index> limits;
    for (const std::size_t i : part) {
      const auto length = static_cast<Index>(sources[i].size());
      const Index by_length =
          config.length_factor > 0
              ? static_cast<Index>(std::min(config.length_factor * static_cast<double>(length + 1),
                                            static_cast<double>(longest)))
              : std::min(2 * length + 10, longest);
      limits.push_back(config.max_tokens > 0 ? config.max_tokens : by_length);
    }
    const auto [host_ids, host_mask] = source_batch(sources, part, config);
    const Tensor ids = host_ids.to(model.device()), mask = host_mask.to(model.device());
    TranslationSteps steps(model, model.encode(ids, mask), mask, config.cache, config.graphs);
    search(steps, part, limits, [&](std::size_t sentence, Hypothesis found) {
      results[part[sentence]] = std::move(found);
      ++done;
      if (config.progress) config.progress(done);
    });
  }
  return results;
}

}  // namespace

std::vector<Hypothesis> beam_search(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                                    const SearchConfig& config) {
  if (config.n_best < 1 || config.n_best > std::max<Index>(config.beam, 1))
    throw Error(
        format("[beam_search] n_best must be from 1 to beam; got n_best={}, beam={}; try a larger beam",
               config.n_best, config.beam));
  return in_batches("beam_search", model, sources, config,
                    [&](NextTokenModel& steps, const auto&, const std::vector<Index>& limits,
                        const Finished& finished) { search_beams(steps, limits, config, finished); });
}

std::vector<Hypothesis> sample(const EncoderDecoder& model, const std::vector<TokenIds>& sources,
                               const SamplingConfig& sampling, const SearchConfig& config) {
  sampling.check();
  return in_batches("sample", model, sources, config,
                    [&](NextTokenModel& steps, const std::vector<std::size_t>& part,
                        const std::vector<Index>& limits, const Finished& finished) {
                      std::vector<Generator> randoms;
                      for (const std::size_t source : part)
                        randoms.emplace_back(sampling.seed, sampling.stream + source);
                      search_samples(steps, limits, config, sampling, randoms, finished);
                    });
}

}  // namespace tapeformer
