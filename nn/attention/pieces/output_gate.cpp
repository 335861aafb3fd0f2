#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/nn/attention/cost.h>
#include <tapeformer/nn/attention/pieces/output_gate.h>
#include <tapeformer/nn/initialization.h>
#include <tapeformer/nn/linear.h>

namespace tapeformer {

namespace {

/// The gates of one token.
Index gate_count(const AttentionConfig& config) {
  return config.heads * (config.output_gate == OutputGate::head ? 1 : config.value_width);
}

class GatedOutputs : public AttentionPiece {
 public:
  GatedOutputs(const AttentionConfig& config, Generator& random)
      : gate_({config.width, gate_count(config), false, Unary::sigmoid}, random) {
    xavier_uniform(gate_.weight(), random);
  }
  Tensor change_output(const Tensor& y_bthe, const CallHeads& heads) const override {
    const Tensor gates_btn = gate_(heads.input_btc);
    return y_bthe * reshape(gates_btn, {y_bthe.size(0), y_bthe.size(1), y_bthe.size(2), -1});
  }
  void visit(ParameterVisitor& visitor) override { visitor.child("gate", gate_); }

 private:
  Linear gate_;
};

}  // namespace

void OutputGates::describe(const FieldVisitor& in_models, const FieldVisitor& /*in_layers*/) {
  in_models("output_gate", named(output_gate),
            "sigmoid gates on the heads' outputs (mha, gqa, mqa): none, head or element");
}

MadePiece OutputGates::make(const AttentionConfig& config, Generator& random) {
  const bool is_none = config.output_gate == OutputGate::none;
  return is_none ? nullptr : std::make_unique<GatedOutputs>(config, random);
}

void OutputGates::add_cost(const AttentionConfig& config, CostSum& sum) {
  if (config.output_gate == OutputGate::none) return;
  const double gates = gate_count(config);
  sum.projection(sum.N, config.width, gates, false);
  sum.keeps(sum.N * (gates + config.heads * config.value_width));
}

PieceCases OutputGates::cases() {
  return {{"multi_head_gated_heads", "mha", [](AttentionConfig& c) { c.output_gate = OutputGate::head; }},
          {"grouped_query_gates", "gqa", [](AttentionConfig& c) { c.output_gate = OutputGate::element; }}};
}

}  // namespace tapeformer
