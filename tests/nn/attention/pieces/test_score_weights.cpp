#include <tapeformer/tests/nn/attention/multi_head_case.h>

#include <cmath>

using namespace tapeformer;

namespace {

void sinks(AttentionConfig& c) { c.sinks = true; }
void sigmoid_weights(AttentionConfig& c) { c.weighting = AttentionWeighting::sigmoid, c.sigmoid_keys = 16; }

}  // namespace

TEST_CASE("sinks join softmax's sum, and sigmoids have a bias for each head") {
  check_formula(sinks, {{}, [](auto& p, AttentionOptions& options) { options.sinks = p["sinks"]; }});
  check_formula(sigmoid_weights, {{}, [](auto& p, AttentionOptions& options) {
                                    options.weighting = AttentionWeighting::sigmoid;
                                    options.mask = reshape(p["sigmoid_shift"], {4, 1, 1});
                                  }});
}

TEST_CASE("sinks start at zero, and sigmoid weights at -log of the keys") {
  auto with_sinks = fresh_module<MultiHeadAttention>(layer_config("mha", sinks));
  CHECK(parameters_of(with_sinks).at("sinks").at(3) == 0);
  auto sigmoid = fresh_module<MultiHeadAttention>(layer_config("mha", sigmoid_weights));
  CHECK(parameters_of(sigmoid).at("sigmoid_shift").at(3) == doctest::Approx(-std::log(16.0)));
}

TEST_CASE("a softmax's sinks and sigmoid weights are refused together") {
  CHECK(
      message_of<Error>([] { layer_config("mha", [](auto& c) { sinks(c), sigmoid_weights(c); }).check(); }) ==
      "[attention] sinks join the sum of a softmax; got attention=mha, weighting=sigmoid, sinks=true; "
      "try sinks=false");
}
