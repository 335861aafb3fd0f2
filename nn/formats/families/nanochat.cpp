#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

Family nanochat_family() {
  const auto describe = [](ConfigMap& map) {
    describe_llama_base(map, 2048);
    map.activation("hidden_act", "relu2", false);
    map.fixed("norm_gain", false);
    map.fixed("embedding_norm", true);
    describe_qk_norms(map, QkNorm::plain);
    describe_biases(map);
    map.fixed("feed_forward_bias", false);
    describe_softcap(map, "final_logit_softcapping", "logit_softcap", map.model.logit_softcap, 15);
    describe_rotations(map);
    map.fixed("rotary_reversed", true);
    // Transformers rotates before it norms, which gives the same without gains, unless rotations scale.
    double& scale = map.model.attention.rotations.attention_factor;
    if (map.reads && scale != 1)
      map.reads->fail("attention_factor",
                      "= " + value_text(scale) + " changes the arithmetic and is not implemented");
    if (map.fits) scale = 1;
  };
  return {"nanochat", "NanoChat", "NanoChatForCausalLM", describe,
          renamed(llama_names(), {{"layers.*.feed_forward.up", {"model.layers.*.mlp.fc1"}},
                                  {"layers.*.feed_forward.down", {"model.layers.*.mlp.fc2"}}})};
}

}  // namespace tapeformer
