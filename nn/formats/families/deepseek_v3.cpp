#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

void describe_deepseek_v3(ConfigMap& map) {
  describe_deepseek(map, 4096, 2.5);
  if (map.reads && !map.reads->flag("rope_interleave", true))
    map.model.attention.rotations.layout = RotaryLayout::half_split;
  map.fixed("router", std::string("sigmoid"));
  map.fixed("balance", std::string("bias"));
  map.field("norm_topk_prob", "normalized_router", true);
  map.field("n_group", "expert_groups", 8);
  map.field("topk_group", "active_groups", 4);
  map.demand("scoring_func", "sigmoid");
  map.demand("topk_method", "noaux_tc");
}

}  // namespace

Family deepseek_v3_family() {
  return {"deepseek_v3", "DeepSeek V3", "DeepseekV3ForCausalLM", describe_deepseek_v3, deepseek_names()};
}

}  // namespace tapeformer
