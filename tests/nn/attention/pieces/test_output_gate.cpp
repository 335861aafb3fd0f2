#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/nn/attention/multi_head_case.h>

using namespace tapeformer;

TEST_CASE("outputs are gated by sigmoids of a projection, for a head or for each of its components") {
  for (const OutputGate gate : {OutputGate::head, OutputGate::element}) {
    check_formula([gate](auto& c) { c.output_gate = gate; },
                  {{}, {}, [gate](auto& p, const LayerInputs& in, const Tensor& y, const Tensor&) {
                     const Tensor gates = sigmoid(linear(in.x, p["gate.weight"], {}));
                     const Index width = gate == OutputGate::head ? 1 : y.size(3);
                     return y * reshape(gates, {y.size(0), y.size(1), y.size(2), width});
                   }});
  }
  CHECK(message_of<Error>([] { kind_named<OutputGate>("all"); }) ==
        "output_gate must be none, head or element; got all");
}
