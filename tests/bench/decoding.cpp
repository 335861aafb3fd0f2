// How fast a translation model writes, with each cache and without.
// Usage: bench_decoding [--width C] [--heads H] [--layers L] [--feed-forward F] [--vocabulary V] [--batch B]
//                       [--source S] [--tokens T] [--beam K] [--attention KIND] [--rounds N]
//        defaults: the quickstart model
#include <tapeformer/nn/generate.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace tapeformer;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Workload {
  Index width = 128, heads = 4, layers = 2, feed_forward = 256, vocabulary = 400, batch = 64, source = 12,
        tokens = 12, beam = 5, rounds = 5;
  std::string attention = "mha";
};

}  // namespace

int main(int argc, char** argv) {
  Workload w;
  CLI::App app("Times beam search with each cache and without.");
  app.add_option("--width", w.width);
  app.add_option("--heads", w.heads);
  app.add_option("--layers", w.layers);
  app.add_option("--feed-forward", w.feed_forward);
  app.add_option("--vocabulary", w.vocabulary);
  app.add_option("--batch", w.batch);
  app.add_option("--source", w.source);
  app.add_option("--tokens", w.tokens);
  app.add_option("--beam", w.beam);
  app.add_option("--attention", w.attention);
  app.add_option("--rounds", w.rounds);
  CLI11_PARSE(app, argc, argv);

  EncoderDecoderConfig config;
  config.layer.attention = attention_kind(w.attention);
  config.layer.width = w.width, config.layer.heads = w.heads, config.layer.feed_forward = w.feed_forward;
  config.encoder_layers = config.decoder_layers = w.layers;
  config.source_vocabulary = config.target_vocabulary = w.vocabulary;
  config.max_length = std::max(w.source, w.tokens) + 1;
  Generator random(1);
  EncoderDecoder model(config, random);
  for (auto& [name, parameter] : model.named_parameters())
    if (name == "head.bias")
      parameter.value().data<float>()[SearchConfig{}.end] = -1e4F;  // never ends by itself
  model.eval();
  std::vector<TokenIds> sources(static_cast<std::size_t>(w.batch),
                                TokenIds(static_cast<std::size_t>(w.source)));
  for (TokenIds& source : sources)
    for (std::int32_t& token : source) token = static_cast<std::int32_t>(4 + random.below(w.vocabulary - 4));

  SearchConfig search;
  search.beam = w.beam, search.batch = w.batch, search.max_tokens = w.tokens;
  std::printf("%lld parameters (%s), %lld sources of %lld tokens, beam %lld, %lld tokens each\n",
              static_cast<long long>(model.parameter_count()), w.attention.c_str(),
              static_cast<long long>(w.batch), static_cast<long long>(w.source),
              static_cast<long long>(w.beam), static_cast<long long>(w.tokens));
  const std::pair<const char*, std::optional<CacheConfig>> caches[] = {
      {"without", std::nullopt},
      {"contiguous", CacheConfig{}},
      {"paged", CacheConfig{CacheKind::paged, 0, 16}}};
  double without = 0;
  for (const auto& [name, cache] : caches) {
    search.cache = cache;
    double best = 1e300;
    for (Index round = 0; round <= w.rounds; ++round) {  // the first one fills the pools
      const double begun = now();
      beam_search(model, sources, search);
      if (round > 0) best = std::min(best, now() - begun);
    }
    if (!cache) without = best;
    std::printf("%-10s  %8.2f ms, %9.0f tokens/s, %6.2f times without\n", name, 1e3 * best,
                static_cast<double>(w.batch * w.tokens) / best, without / best);
  }
  return 0;
}
