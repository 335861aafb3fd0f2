/// Differentiates a layer, so that the library and what it links are there.
#include <tapeformer/tapeformer.h>

#include <cstdio>

using namespace tapeformer;

int main() {
  Generator random(42);
  AttentionConfig config;
  config.width = 8, config.heads = 2;
  MultiHeadAttention attention(config, random);
  Tape tape;
  const Tensor x_btc = Tensor::randn({2, 3, 8}, random);
  tape.backward(sum(attention(x_btc, x_btc)));
  std::printf("%s\n", attention.parameters().front().gradient().shape().text().c_str());
}
