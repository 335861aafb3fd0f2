#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/nn/attention/head_norms.h>
#include <tapeformer/tests/nn/module_case.h>

#include <doctest/doctest.h>

#include <cmath>

using namespace tapeformer;

namespace {

AttentionConfig config_of(QkNorm norm) {
  AttentionConfig config;
  config.kind = "gqa", config.width = 12, config.heads = 4, config.groups = 2, config.key_width = 6;
  config.qk_norm = norm;
  return config.resolved();
}

}  // namespace

TEST_SUITE("nn/attention/head_norms") {
  TEST_CASE(
      "at first normed heads have a root mean square of one, and l2 scores are sqrt(D) times a cosine") {
    const Tensor x = random_values({2, 3, 24}, 3, DType::f32), y = random_values({2, 3, 12}, 4, DType::f32);
    for (const QkNorm kind : {QkNorm::rms, QkNorm::joint, QkNorm::l2}) {
      CAPTURE(std::string(qk_norm_name(kind)));
      const HeadNorms norms(config_of(kind));
      const Tensor query = norms.query(x), key = norms.key(y);
      REQUIRE(query.shape() == Shape{2, 3, 4, 6});
      REQUIRE(key.shape() == Shape{2, 3, 2, 6});
      const Axes axes = kind == QkNorm::joint ? Axes{-2, -1} : Axes{-1};
      const double factor = kind == QkNorm::l2 ? std::sqrt(6.0) : 1;
      for (const auto& [heads, square] : {std::pair(query, factor * factor), std::pair(key, 1.0)}) {
        const Tensor squares = mean(heads * heads, axes);
        for (Index i = 0; i < squares.elements(); ++i) CHECK_BELOW(deviation(squares.at(i), square), 1e-4);
      }
      // The default scale is 1 / sqrt(D); l2's makes lengths of sqrt(D) ones of 1.
      CHECK(norms.scale() == (kind == QkNorm::l2 ? 1.0 / 6 : 0.0));
      CHECK(norms.takes_packed() == (kind == QkNorm::rms));
    }
  }

  TEST_CASE("gains are of a head's width, of all heads, or one for each head") {
    const auto sizes = [](QkNorm kind, bool shared) {
      AttentionConfig config = config_of(kind);
      config.shared_keys = shared;
      HeadNorms norms(config);
      std::string text;
      for (const auto& [name, parameter] : norms.named_parameters())
        text += name + parameter.value().shape().text() + " ";
      CHECK(HeadNorms::parameters(config) == static_cast<double>(norms.parameter_count()));
      return text;
    };
    CHECK(sizes(QkNorm::none, false).empty());
    CHECK(sizes(QkNorm::rms, false) == "query_norm.weight[6] key_norm.weight[6] ");
    CHECK(sizes(QkNorm::joint, false) == "query_norm.weight[24] key_norm.weight[12] ");
    CHECK(sizes(QkNorm::l2, false) == "query_norm.weight[4] ");
    CHECK(sizes(QkNorm::joint, true) == "query_norm.weight[24] ");
  }
}
