#include <tapeformer/nn/formats/safetensors.h>
#include <tapeformer/tests/autograd/ops/attention_case.h>

#include <nlohmann/json.hpp>

using namespace tapeformer;

TEST_CASE("both paths give what PyTorch gives, over the grid of its options") {
  const Golden golden("attention");
  const auto cases =
      SafetensorsFile::open(TAPEFORMER_SOURCE_DIR "/tests/golden/attention.safetensors").metadata();
  CHECK(cases.size() >= 48);
  for (const auto& entry : cases) {
    const std::string& name = entry.first;
    CAPTURE(name);
    const nlohmann::ordered_json given = golden.options(name);
    AttentionOptions options;
    options.causal = given.value("causal", false);
    if (given.value("top_left", false)) options.alignment = CausalAlignment::top_left;
    options.scale = given.value("scale", 0.0);
    options.window_before = given.value("before", kUnlimited);
    options.window_after = given.value("after", kUnlimited);
    for (const std::string& argument : golden.names(name, "in.")) {
      if (argument == "mask") options.mask = golden.tensor(name, "in.mask");
      if (argument == "prefix") options.prefix_lengths = golden.tensor(name, "in.prefix");
    }
    OpResult expected{golden.tensor(name, "out"), {}};
    std::vector<Tensor> inputs;
    for (const char* input : {"query", "key", "value"}) {
      inputs.push_back(golden.tensor(name, std::string("in.") + input));
      expected.gradients.push_back(golden.tensor(name, std::string("grad.") + input));
    }
    for (const AttentionFunction path : kAttentionPaths) {
      CAPTURE(path == composed_attention);
      for (const DType type : {DType::f64, DType::f32}) {
        const OpResult got =
            run_op(attention_by(path, options), {inputs[0].to(type), inputs[1].to(type), inputs[2].to(type)},
                   golden.tensor(name, "seed"));
        CHECK_BELOW(attention_error(got, expected), type == DType::f64 ? 1e-11 : 1e-5);
      }
    }
  }
}
