#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family mistral_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 131072, 1e-6, 8);
    map.activation("hidden_act", "silu", true);
    fix_biases(map, false, false);
    map.fixed("feed_forward_bias", false);
    describe_window(map, 4096);
    describe_rotations(map);
  };
  return {"mistral", "Mistral", "MistralForCausalLM", describe, llama_names()};
}

Family mixtral_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 131072, 1e-5, 8);
    map.activation("hidden_act", "silu", true);
    fix_biases(map, false, false);
    describe_experts(map, "num_local_experts", "num_experts", 0.001);
    map.fixed("normalized_router", true);
    map.demand("router_jitter_noise", 0.0);
    describe_window(map);
    describe_rotations(map, 1e6);
  };
  return {"mixtral", "Mixtral", "MixtralForCausalLM", describe,
          with_experts(llama_names(), "block_sparse_moe", "w1", "w3", "w2")};
}

}  // namespace tapeformer
