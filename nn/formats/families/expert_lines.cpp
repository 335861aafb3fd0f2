#include <tapeformer/nn/formats/families/families.h>

#include <algorithm>

namespace tapeformer {

void describe_experts(ConfigMap& map, const char* count, const char* other_count, double balance_loss) {
  map.has({"experts", "active_experts", "balance_loss", "router_z_loss"});
  map.fixed("router", std::string("softmax"));
  map.fixed("shared_expert", Index{0});
  map.fixed("feed_forward_bias", false);
  ExpertsConfig& model = map.model.experts;
  if (map.reads) {
    model.experts = map.reads->size(map.reads->has(other_count) ? other_count : count);
    model.active = map.reads->size("num_experts_per_tok");
    const double loss = map.reads->rate("router_aux_loss_coef", balance_loss);
    const bool has_loss = map.reads->flag("output_router_logits", false);
    model.balance_loss = has_loss ? loss * static_cast<double>(model.active) : 0;
  }
  if (map.fits && model.experts == 0) model.experts = model.active;
  if (!map.writes) return;
  ConfigMap::Json& file = *map.writes;
  file[count] = model.experts, file["num_experts_per_tok"] = model.active;
  file["output_router_logits"] = model.balance_loss > 0;
  if (model.balance_loss > 0)
    file["router_aux_loss_coef"] = model.balance_loss / static_cast<double>(model.active);
}

TensorNames with_experts(TensorNames names, const char* mlp, const char* gate, const char* up,
                         const char* down) {
  const std::string whole = std::string("model.layers.*.") + mlp, expert = whole + ".experts.#.";
  names = renamed(names, {{"layers.*.feed_forward.up", {expert + gate, expert + up}},
                          {"layers.*.feed_forward.down", {expert + down}}});
  const auto norm = std::find_if(names.list.begin(), names.list.end(), [](const TensorName& name) {
    return name.ours == "layers.*.feed_forward_norm";
  });
  names.list.insert(norm + 1, {"layers.*.feed_forward.router", {whole + ".gate"}});
  return names;
}

}  // namespace tapeformer
