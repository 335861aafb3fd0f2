// The speed of generation by a translation model, or a language model, with each cache and without; on a GPU
// also with the steps queued kernel by kernel instead of as graphs.
// Usage: bench decoding --language character|gpt2-124m [--tokens T] [--batch SAMPLES] [COMMON...]
//        bench decoding --language ... --ask: every line of input is a number of samples, which are written,
//                       with the contiguous cache, and answered with the seconds that took
//        bench decoding [--width C] [--heads H] [--layers L] [--feed-forward F] [--vocabulary V] [--batch B]
//                       [--source S] [--tokens T] [--beam K] [COMMON...]; defaults: the quickstart model
//        COMMON: [--attention KIND] [--rounds N] [--only CACHE] [--device cuda[:N]]
//                [--precision tf32|bf16] [--no-graphs]
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/nn/generation/generate.h>
#include <tapeformer/nn/generation/generate_text.h>
#include <tapeformer/nn/generation/translation_steps.h>
#include <tapeformer/tests/bench/bench.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

using namespace tapeformer;

namespace {

struct Workload {
  Index width = 128, heads = 4, layers = 2, feed_forward = 256, vocabulary = 400, batch = 64, source = 12,
        tokens = 12, beam = 5, rounds = 5;
  std::string attention = "mha", language, only;
  bool asks = false;
  ComputeOptions compute{"cpu", "f32"};
};

/// A way to generate.
struct Way {
  const char* name;
  std::optional<CacheConfig> cache = CacheConfig{};
  bool graphs = false;
};
std::vector<Way> ways(const Compute& compute) {
  std::vector<Way> all = {{"without", std::nullopt}, {"contiguous"}};
  if (compute.device.is_cuda() && compute.graphs)
    all.push_back({"contiguous, as graphs", CacheConfig{}, true});
  all.push_back({"paged", CacheConfig{CacheKind::paged, 0, 16}});
  return all;
}

double seconds_now(Device device) {
  if (device.is_cuda()) cuda::synchronize(device.index);
  return now();
}

/// Times each way to generate, and prints a line for it. `write(way)` returns the tokens; `graph(way)` takes
/// some equal steps, and returns the graph that they replayed.
template <class Write, class Graph>
void compare_ways(const Workload& w, const Compute& compute, const Write& write, const Graph& graph) {
  double without = 0;
  TokenIds expected;
  for (const Way& way : ways(compute)) {
    if (std::string(way.name).find(w.only) != 0) continue;
    double best = 1e300;
    TokenIds tokens;
    const Index replayed_before = CudaGraphCache::counts_of_all().replayed;
    for (Index round = 0; round <= w.rounds; ++round) {  // the first one fills the pools
      const double begun = seconds_now(compute.device);
      tokens = write(way);
      const double seconds = seconds_now(compute.device) - begun;
      if (round > 0) best = std::min(best, seconds);
    }
    if (!way.cache) without = best, expected = tokens;
    print("{:-21s}  {:8.3f} ms per step, {:9.1f} tokens/s", way.name,
          1e3 * best / static_cast<double>(w.tokens), static_cast<double>(w.batch * w.tokens) / best);
    if (way.cache && without > 0)
      print(", {:6.2f} times without, {} tokens", without / best, tokens == expected ? "the same" : "OTHER");
    if (way.graphs) {
      const Index replayed = CudaGraphCache::counts_of_all().replayed - replayed_before;
      print(", {} of {} steps replayed, of {} kernels and copies", replayed / (w.rounds + 1), w.tokens,
            graph(way));
    }
    print("\n");
  }
}

/// The number of nodes in the graph of a step with `rows` rows.
Index graph_nodes(CachedSteps& steps, Index rows) {
  for (int i = 0; i < 4; ++i) steps.step(TokenIds(static_cast<std::size_t>(rows), 4));
  if (!steps.replay() || steps.replay()->counts().replayed == 0)
    throw Error("steps are not replayed: " + (steps.replay() ? steps.replay()->refusal() : "no places"));
  return steps.replay()->nodes();
}

/// nanoGPT's two shapes; texts begin with one token and stay within the context.
DecoderOnlyConfig language_config(const Workload& w) {
  DecoderOnlyConfig config;
  config.attention.kind = w.attention;
  if (w.language == "character") {
    config.vocabulary = 65, config.context = 64, config.layers = 4, config.attention.heads = 4,
    config.width = 128;
    config.attention.bias = config.norm_bias = config.feed_forward_bias = false;
  } else if (w.language == "gpt2-124m") {
    config.vocabulary = 50257, config.context = 1024, config.layers = 12, config.attention.heads = 12;
    config.width = 768;
  } else if (w.language == "tiny") {
    config.vocabulary = 11, config.context = 12, config.layers = 1, config.attention.heads = 2,
    config.width = 16;
  } else {
    throw Error("--language is character, gpt2-124m or tiny; got " + w.language);
  }
  return config;
}

int time_language_model(const Workload& w) {
  Generator random(1);
  DecoderOnly model(language_config(w), random);
  for (auto& [name, parameter] : model.named_parameters())  // so that greedy tokens differ
    if (parameter.value().rank() == 2 && name.find("embedding") == std::string::npos)
      random.fill_normal(parameter.value(), 0, 0.1);
  const Compute compute = w.compute.chosen();
  compute.apply(model);
  model.eval();
  TextGenerationConfig generation;
  generation.sampling.temperature = 0;
  generation.max_tokens = w.tokens, generation.samples = w.batch;
  generation.graphs = compute.graphs;
  if (w.asks) {
    while (std::cin >> generation.samples) {
      const double begun = seconds_now(compute.device);
      generate_text(model, {1}, generation, [](Index, std::int32_t) { return true; });
      std::printf("%.9f\n", seconds_now(compute.device) - begun);
      std::fflush(stdout);
    }
    return 0;
  }
  print("{}: {} parameters ({}), {} samples of {} tokens after a prompt of one\n", w.language,
        model.parameter_count(), w.attention, w.batch, w.tokens);
  compare_ways(
      w, compute,
      [&](const Way& way) {
        generation.cache = way.cache, generation.graphs = way.graphs;
        TokenIds tokens;
        generate_text(model, {1}, generation, [&](Index, std::int32_t token) {
          tokens.push_back(token);
          return true;
        });
        return tokens;
      },
      [&](const Way& way) {
        LanguageSteps steps(model, way.cache, way.graphs);
        steps.prompt({1});
        steps.reorder(std::vector<std::int32_t>(static_cast<std::size_t>(w.batch), 0));
        return graph_nodes(steps, w.batch);
      });
  return 0;
}

int time_translation_model(const Workload& w) {
  EncoderDecoderConfig config;
  config.layer.attention.kind = w.attention;
  config.layer.width = w.width, config.layer.attention.heads = w.heads,
  config.layer.feed_forward = w.feed_forward;
  config.encoder_layers = config.decoder_layers = w.layers;
  config.source_vocabulary = config.target_vocabulary = w.vocabulary;
  config.max_length = std::max(w.source, w.tokens) + 1;
  Generator random(1);
  EncoderDecoder model(config, random);
  for (auto& [name, parameter] : model.named_parameters())
    if (name == "head.bias")
      parameter.value().data<float>()[SearchConfig{}.end] = -1e4F;  // never ends by itself
  const Compute compute = w.compute.chosen();
  compute.apply(model);
  model.eval();
  std::vector<TokenIds> sources(static_cast<std::size_t>(w.batch),
                                TokenIds(static_cast<std::size_t>(w.source)));
  for (TokenIds& source : sources)
    for (std::int32_t& token : source) token = static_cast<std::int32_t>(4 + random.below(w.vocabulary - 4));

  SearchConfig search;
  search.beam = w.beam, search.batch = w.batch, search.max_tokens = w.tokens;
  print("{} parameters ({}), {} sources of {} tokens, beam {}, {} tokens each\n", model.parameter_count(),
        w.attention, w.batch, w.source, w.beam, w.tokens);
  compare_ways(
      w, compute,
      [&](const Way& way) {
        search.cache = way.cache, search.graphs = way.graphs;
        TokenIds tokens;
        for (const Hypothesis& found : beam_search(model, sources, search))
          tokens.insert(tokens.end(), found.tokens.begin(), found.tokens.end());
        return tokens;
      },
      [&](const Way& way) {
        const Index rows = w.batch * w.beam;
        const Tensor ids = Tensor::full({rows, w.source}, 4, DType::i32, compute.device);
        TranslationSteps steps(model, model.encode(ids, {}), {}, way.cache, way.graphs);
        return graph_nodes(steps, rows);
      });
  return 0;
}

}  // namespace

int tapeformer::bench_decoding(int argc, char** argv) {
  Workload w;
  const CommandLine line("Times generation with each cache and without.");
  line.option("--language", w.language);
  line.option("--only", w.only, "without, contiguous or paged");
  line.flag("--ask", w.asks, "read numbers of samples from the input");
  line.option("--width", w.width);
  line.option("--heads", w.heads);
  line.option("--layers", w.layers);
  line.option("--feed-forward", w.feed_forward);
  line.option("--vocabulary", w.vocabulary);
  const CommandOption batch = line.option("--batch", w.batch);
  line.option("--source", w.source);
  const CommandOption tokens = line.option("--tokens", w.tokens);
  line.option("--beam", w.beam);
  line.option("--attention", w.attention);
  line.option("--rounds", w.rounds);
  line.option("--device", w.compute.device, "cpu, cuda or cuda:N");
  line.option("--precision", w.compute.precision, "f32, or on a GPU tf32 or bf16");
  line.negative_flag("--no-graphs", w.compute.graphs, "on a GPU leave out the steps that are graphs");
  if (!line.read(argc, argv)) return 0;
  if (w.language.empty()) return time_translation_model(w);
  if (!tokens.given()) w.tokens = w.language == "tiny" ? 6 : 64;
  if (!batch.given()) w.batch = 1;
  return time_language_model(w);
}
