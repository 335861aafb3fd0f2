// Windows: each layer sees a few words back, and layers upon layers see far.
#include <tapeformer/autograd/ops/attention.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/autograd/tape/tape.h>
#include <tapeformer/examples/guide/show.h>

using namespace tapeformer;

int main() {
  const Index T = 16, W = 3;  // W: how many words before itself a word sees
  Generator random(1);
  const Tensor x_1t11 = Tensor::randn({1, T, 1, 1}, random, DType::f64);
  AttentionOptions options;
  options.causal = true;
  options.window_before = W;
  for (int layers = 1; layers <= 4; ++layers) {
    Tape tape;
    tape.watch(x_1t11);
    Tensor y = x_1t11;
    for (int i = 0; i < layers; ++i) y = scaled_dot_product_attention(y, y, y, options);
    const Tensor last = sum(slice(y, 1, T - 1, 1));
    // Zero where the last output does not depend on x.
    const Tensor gradient = tape.gradients(last, {x_1t11})[0];
    std::printf("%d layer%s", layers, layers == 1 ? "   " : "s  ");
    for (Index t = 0; t < T; ++t) std::printf(" %s", gradient.at(t) == 0 ? "." : "#");
    std::printf("\n");
  }
}
