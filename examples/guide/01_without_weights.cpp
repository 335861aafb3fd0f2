// Attention without weights: every word gathers the words that resemble it.
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/xtensor.h>
#include <tapeformer/examples/guide/show.h>
#include <tapeformer/examples/translation/attention_svg.h>
#include <tapeformer/nn/attention/basic/self_attention.h>

#include <xtensor/xmath.hpp>

using namespace tapeformer;

int main(int argc, char** argv) {
  const Labels words = {"cat", "dog", "car", "bus"};
  // One row a word: how much of an animal it is, and how much of a vehicle.
  const Tensor x_tc = from_xtensor(xt::xarray<double>{{2.0, 0.2}, {1.6, 0.6}, {0.1, 2.0}, {0.5, 1.7}});

  const Tensor scores_tt = matmul(x_tc, transposed(x_tc));  // how alike are two words?
  const Tensor weights_tt = softmax(scores_tt);             // each row becomes shares that sum to 1
  const Tensor y_tc = matmul(weights_tt, x_tc);             // each word becomes a mixture of all

  show("scores", scores_tt, words, words);
  show("weights", weights_tt, words, words);
  const xt::xarray<double> sums_t = xt::sum(as_xtensor<double>(weights_tt), {1});
  std::printf("every row of weights sums to 1: %s\n\n", xt::allclose(sums_t, 1) ? "yes" : "no");
  show("x", x_tc, words, {"animal", "vehicle"});
  show("y", y_tc, words, {"animal", "vehicle"});

  const Tensor same_tc = self_attention(x_tc);  // the library's own, nn/attention/basic/self_attention.cpp
  std::printf("the library's differs by less than 1e-12: %s\n",
              largest_difference(y_tc, same_tc) < 1e-12 ? "yes" : "no");
  if (argc > 1) write_heat_map(argv[1], weights_tt, words, words, {true, "who gathers whom"});
}
