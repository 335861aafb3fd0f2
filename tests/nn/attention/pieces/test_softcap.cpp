#include <tapeformer/tests/nn/attention/multi_head_case.h>

using namespace tapeformer;

TEST_CASE("scores are those of the formula") {
  check_formula([](auto& c) { c.softcap = 1.5; }, {{}, [](auto&, AttentionOptions& options) {
                                                     options.score_function = ScoreFunction::softcap;
                                                     options.score_parameter =
                                                         Tensor::full({1}, 1.5, DType::f64);
                                                   }});
}
