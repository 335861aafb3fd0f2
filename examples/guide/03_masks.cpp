// Masks: what a word may see.
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/examples/guide/show.h>
#include <tapeformer/nn/attention/basic/single_head.h>

using namespace tapeformer;

constexpr Index kLength = 6, kWidth = 8;  // T, C

/// Draws who sees whom under `masks`: queries go down, keys to the right.
void show_mask(const char* title, const AttentionMasks& masks) {
  Tensor weights_11tt;
  AttentionOptions options(masks);
  options.weights = &weights_11tt;
  const Tensor x_1t11 = Tensor::zeros({1, kLength, 1, 1});
  scaled_dot_product_attention(x_1t11, x_1t11, x_1t11, options);
  std::printf("%s\n", title);
  for (Index t = 0; t < kLength; ++t) {
    for (Index s = 0; s < kLength; ++s) std::printf(" %s", weights_11tt.at(t * kLength + s) > 0 ? "#" : ".");
    std::printf("\n");
  }
}

int main() {
  Generator random(1);
  SingleHeadConfig config;
  config.width = kWidth, config.causal = true;
  const SingleHeadAttention attention(config, random);
  const Tensor x_1tc = Tensor::randn({1, kLength, kWidth}, random), before_1tc = attention(x_1tc, x_1tc);
  const Tensor changed_1tc = x_1tc.clone();
  changed_1tc.data<float>()[4 * kWidth] += 1;  // another word at position 4
  const Tensor after_1tc = attention(changed_1tc, changed_1tc);
  for (Index t = 0; t < kLength; ++t) {
    bool same = true;
    for (Index c = 0; c < kWidth; ++c) same &= before_1tc.at(t * kWidth + c) == after_1tc.at(t * kWidth + c);
    std::printf("output %d %s\n", static_cast<int>(t), same ? "is the same to the last bit" : "has changed");
  }

  AttentionMasks causal, window, prefix, padding, packed;
  causal.causal = true;
  window.causal = true, window.window_before = 2;
  prefix.causal = true, prefix.prefix_lengths = Tensor::from<std::int32_t>({3});
  padding.key_lengths = Tensor::from<std::int32_t>({4});
  packed.causal = true, packed.query_starts = Tensor::from<std::int32_t>({0, 2, 6});
  show_mask("causal", causal);
  show_mask("causal, within a window of two words before", window);
  show_mask("causal, after a prefix of three words that all see", prefix);
  show_mask("padding: the last two words are not there", padding);
  show_mask("causal, two sequences packed into one row", packed);
}
