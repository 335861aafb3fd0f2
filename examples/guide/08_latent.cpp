// Latent attention: the cache holds one narrow vector per token, of which all heads make keys and values.
#include <tapeformer/autograd/random.h>
#include <tapeformer/examples/guide/show.h>
#include <tapeformer/nn/attention/latent.h>

using namespace tapeformer;

int main() {
  AttentionConfig config;
  config.kind = "mla", config.width = 256, config.heads = 8;
  config.latent_width = 64, config.rotary_width = 16, config.rotary = true;
  Generator random(1);
  const Tensor x_1tc = Tensor::randn({1, 12, config.width}, random, DType::f64);

  Tensor results[2];
  std::printf("%-9s %11s %16s %30s\n", "form", "parameters", "bytes per token",
              "MFLOP of a token after 10,000");
  for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed}) {
    config.form = form;
    Generator same(2);
    LatentAttention attention(config, same);
    attention.to(DType::f64);
    AttentionContext context;
    context.causal = true;
    results[form == LatentForm::absorbed] = attention(x_1tc, x_1tc, context);

    AttentionCall decoding;
    decoding.cached = 10000;
    const AttentionCost cost = attention_cost(config, decoding);
    std::printf("%-9s %11d %16d %30.1f\n", name_of(form), static_cast<int>(cost.parameters),
                static_cast<int>(cost.cache_bytes_per_token), static_cast<double>(cost.forward_flops) / 1e6);
  }
  std::printf("the results differ by less than 1e-12: %s\n",
              largest_difference(results[0], results[1]) < 1e-12 ? "yes" : "no");
}
