#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/reduce.h>
#include <tapeformer/tests/nn/attention/multi_head_case.h>

#include <cmath>

using namespace tapeformer;

namespace {

Tensor rms_normed(const Tensor& x, const Axes& axes, double epsilon) {
  return x / sqrt(mean(x * x, axes, true) + epsilon);
}

}  // namespace

TEST_CASE("norms of queries and keys are those of the formulas") {
  check_formula([](auto& c) { c.qk_norm = QkNorm::rms; },
                {[](auto& p, auto&, Tensor& query, Tensor& key, Tensor&) {
                  query = rms_normed(query, {-1}, 1e-6) * p["query_norm.weight"];
                  key = rms_normed(key, {-1}, 1e-6) * p["key_norm.weight"];
                }});
  check_formula([](auto& c) { c.qk_norm = QkNorm::plain; },
                {[](auto&, auto&, Tensor& query, Tensor& key, Tensor&) {
                  query = rms_normed(query, {-1}, 1e-6), key = rms_normed(key, {-1}, 1e-6);
                }});
  check_formula([](auto& c) { c.qk_norm = QkNorm::joint, c.qk_norm_epsilon = 1e-3; },
                {[](auto& p, auto&, Tensor& query, Tensor& key, Tensor&) {
                  const auto normed = [](const Tensor& x, const Tensor& gain) {
                    return rms_normed(x, {-2, -1}, 1e-3) * reshape(gain, {x.size(2), x.size(3)});
                  };
                  query = normed(query, p["query_norm.weight"]), key = normed(key, p["key_norm.weight"]);
                }});
  for (const double scale : {0.0, 0.3})
    check_formula([=](auto& c) { c.qk_norm = QkNorm::l2, c.score_scale = scale; },
                  {[](auto& p, auto&, Tensor& query, Tensor& key, Tensor&) {
                     const auto unit = [](const Tensor& x) {
                       return rms_normed(x, {-1}, 1e-6) * (1 / std::sqrt(static_cast<double>(x.size(3))));
                     };
                     query = unit(query) * reshape(p["query_norm.weight"], {query.size(2), 1});
                     key = unit(key);
                   },
                   [=](auto&, AttentionOptions& options) { options.scale = scale > 0 ? scale : 1; }});
}

TEST_CASE("gains start at 1, l2's at sqrt(D), of a head's width, of all heads, or one for each head") {
  const auto gains = [](QkNorm kind, bool shared) {
    Generator random(test_seed(1));
    const AttentionConfig config =
        layer_config("gqa", [&](auto& c) { c.qk_norm = kind, c.shared_keys = shared; });
    const MadePiece norms = HeadNorms::make(config.resolved(), random);
    std::string text;
    for (const auto& [name, parameter] : norms->named_parameters()) {
      text += name + parameter.value().shape().text() + " ";
      CHECK(parameter.value().at(0) == doctest::Approx(kind == QkNorm::l2 ? std::sqrt(6.0) : 1));
    }
    return text;
  };
  CHECK(gains(QkNorm::rms, false) == "query_norm.weight[6] key_norm.weight[6] ");
  CHECK(gains(QkNorm::joint, false) == "query_norm.weight[24] key_norm.weight[12] ");
  CHECK(gains(QkNorm::l2, false) == "query_norm.weight[4] ");
  CHECK(gains(QkNorm::plain, false).empty());
  CHECK(gains(QkNorm::joint, true) == "query_norm.weight[24] ");
}
