// Queries, keys and values: three views of each word, so that it can look for something unlike itself.
#include <tapeformer/autograd/ops/matmul.h>
#include <tapeformer/autograd/ops/softmax.h>
#include <tapeformer/autograd/random.h>
#include <tapeformer/examples/guide/show.h>

#include <algorithm>

using namespace tapeformer;

/// For random queries and keys of width D: how far the scores spread, and how much the strongest of 16 gets.
void show_spread(Index D, double scale, Generator& random) {
  const Index T = 256, S = 16;
  const Tensor query_td = Tensor::randn({T, D}, random), key_sd = Tensor::randn({S, D}, random);
  const Tensor scores_ts = matmul(query_td, transposed(key_sd), scale);
  const std::vector<float> scores = scores_ts.to_vector<float>(),
                           weights = softmax(scores_ts).to_vector<float>();
  double squares = 0, strongest = 0;
  for (const float score : scores) squares += score * score;
  for (auto row = weights.begin(); row != weights.end(); row += S)
    strongest += *std::max_element(row, row + S);
  std::printf("  D = %4d  scale %-8.4g  scores spread by %5.1f  the strongest of 16 keys gets %.1f\n",
              static_cast<int>(D), scale, std::sqrt(squares / static_cast<double>(T * S)), strongest / T);
}

int main() {
  const Labels words = {"red", "car", "blue", "bus"};
  // One row a word: is it an adjective, is it a noun, and two numbers that say which.
  const Tensor x_tc = Tensor::from<double>({1, 0, 7, 0, 0, 1, 0, 5, 1, 0, 8, 0, 0, 1, 0, 3}, {4, 4});
  // An adjective asks for nouns; a noun says that it is one, and hands over which noun it is.
  const Tensor query_cd = Tensor::from<double>({6, 0, 0, 0}, {4, 1});
  const Tensor key_cd = Tensor::from<double>({0, 1, 0, 0}, {4, 1});
  const Tensor value_ce = Tensor::from<double>({0, 0, 0, 1}, {4, 1});

  const Tensor q_td = matmul(x_tc, query_cd), k_td = matmul(x_tc, key_cd), v_te = matmul(x_tc, value_ce);
  const Tensor weights_tt = softmax(matmul(q_td, transposed(k_td)));
  show("weights", weights_tt, words, words);
  show("y", matmul(weights_tt, v_te), words);

  std::printf("without the scale:\n");
  Generator random(1);
  for (const Index D : {4, 64, 1024}) show_spread(D, 1, random);
  std::printf("with it:\n");
  for (const Index D : {4, 64, 1024}) show_spread(D, 1 / std::sqrt(static_cast<double>(D)), random);
}
