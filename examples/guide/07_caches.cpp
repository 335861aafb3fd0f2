// Caches: what a model keeps of the words it has read, and how grouped queries make that small.
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/examples/guide/show.h>
#include <tapeformer/nn/attention/attention_kind.h>

using namespace tapeformer;

constexpr Index kLength = 12;  // T

int main() {
  std::printf("%-5s %11s %16s %20s %12s\n", "kind", "parameters", "bytes per token", "bytes of 12 tokens",
              "difference");
  for (const char* kind : {"mha", "gqa", "mqa"}) {
    AttentionConfig config;
    config.kind = kind, config.width = 256, config.heads = 8, config.rotary = true;
    if (config.kind == "gqa") config.groups = 2;
    Generator random(1);
    const auto attention = make_attention(config, random);
    const Tensor x_1tc = Tensor::randn({1, kLength, config.width}, random);

    AttentionContext all;
    all.causal = true;
    const Tensor at_once_1tc = (*attention)(x_1tc, x_1tc, all);

    // One token after another: each is projected once, and only its key and value stay.
    const auto cache = make_cache({}, attention->cache_widths());
    double difference = 0;
    for (Index t = 0; t < kLength; ++t) {
      AttentionContext one;
      one.causal = true;
      one.cache = cache.get();
      const Tensor x_11c = slice(x_1tc, 1, t, 1);
      const Tensor y_11c = (*attention)(x_11c, x_11c, one);
      difference = std::fmax(difference, largest_difference(y_11c, slice(at_once_1tc, 1, t, 1)));
    }
    const AttentionCost cost = attention_cost(config, {1, kLength});
    std::printf("%-5s %11d %16d %20d %12s\n", kind, static_cast<int>(cost.parameters),
                static_cast<int>(cost.cache_bytes_per_token), static_cast<int>(cache->bytes()),
                difference < 1e-5 ? "below 1e-5" : "large");
  }
}
