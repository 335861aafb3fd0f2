#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/pieces/softcap.h>

namespace tapeformer {
namespace {

class CappedScores : public AttentionPiece {
 public:
  explicit CappedScores(double softcap) : softcap_(Tensor::full({1}, softcap, DType::f64)) {}

  void change_scores(AttentionOptions& options, DType type, Index /*T*/, Index /*S*/) const override {
    options.score_function = ScoreFunction::softcap;
    options.score_parameter = softcap_.to(type);
  }
  void visit(ParameterVisitor& visitor) override { visitor.buffer("softcap_constant", softcap_); }

 private:
  Tensor softcap_;
};

}  // namespace

void Softcap::describe(const FieldVisitor& in_models, const FieldVisitor& /*in_layers*/) {
  in_models("softcap", softcap, "c: scores become c tanh(scores / c) (mha, gqa, mqa); 0 for none",
            kNotNegative);
}

MadePiece Softcap::make(const AttentionConfig& config, Generator& /*random*/) {
  return config.softcap > 0 ? std::make_unique<CappedScores>(config.softcap) : nullptr;
}

void Softcap::add_cost(const AttentionConfig& config, CostSum& sum) {
  if (config.softcap > 0) sum.keeps_wide(1);
}

PieceCases Softcap::cases() {
  return {{"grouped_query_softcap", "gqa", [](AttentionConfig& c) { c.softcap = 1.5; }}};
}

}  // namespace tapeformer
