#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// The groups in which a token chooses its experts; the names are those of the ways to choose.
void describe_groups(ConfigMap& map) {
  map.has({"expert_groups", "active_groups"});
  ExpertsConfig& experts = map.model.experts;
  const std::string limited = "group_limited_greedy";
  if (map.reads) {
    const std::string method = map.reads->text("topk_method", "greedy");
    if (method != "greedy" && method != limited)
      map.reads->fail("topk_method", "= " + method + " changes the arithmetic and is not implemented");
    if (method == limited) {
      experts.groups = map.reads->size("n_group");
      experts.active_groups = map.reads->size("topk_group");
    }
    map.ignore({"n_group", "topk_group"});
  }
  if (!map.writes || experts.groups == 1) return;
  ConfigMap::Json& file = *map.writes;
  file["topk_method"] = limited, file["n_group"] = experts.groups, file["topk_group"] = experts.active_groups;
}

void describe_deepseek_v2(ConfigMap& map) {
  if (map.fits) fit_width(map.model);  // as transformers demands
  describe_deepseek(map, 2048, 1, 0);
  map.fixed("router", std::string("softmax"));
  map.fixed("balance", std::string("loss"));
  map.fixed("normalized_router", false);
  map.demand("norm_topk_prob", false);
  map.demand("scoring_func", "softmax");
  describe_groups(map);
}

}  // namespace

Family deepseek_v2_family() {
  return {"deepseek_v2", "DeepSeek V2", "DeepseekV2ForCausalLM", describe_deepseek_v2, deepseek_names()};
}

}  // namespace tapeformer
