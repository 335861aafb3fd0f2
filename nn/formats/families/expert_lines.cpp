#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

void describe_experts(ConfigMap& map, const char* count, const char* other_count, double balance_loss,
                      const char* shared) {
  map.has({"experts", "active_experts", "balance_loss", "router_z_loss"});
  map.fixed("router", std::string("softmax"));
  map.fixed("feed_forward_bias", false);
  map.fixed("shared_expert_gate", shared != nullptr);
  ExpertsConfig& model = map.model.experts;
  if (shared == nullptr) {
    map.fixed("shared_expert", Index{0});
  } else {
    map.size(shared, "shared_expert", model.shared, 512);
    if (map.fits && model.shared == 0) model.shared = map.model.hidden_width();
  }
  if (map.reads) {
    model.experts = map.reads->size(map.reads->has(other_count) ? other_count : count);
    model.active = map.reads->size("num_experts_per_tok");
    const double loss = map.reads->rate("router_aux_loss_coef", balance_loss);
    const bool has_loss = map.reads->flag("output_router_logits", false);
    model.balance_loss = has_loss ? loss * static_cast<double>(model.active) : 0;
  }
  if (map.fits && model.experts == 0) model.experts = model.active;
  if (map.fits && model.balance_loss >= static_cast<double>(model.active)) model.balance_loss = 0;
  if (!map.writes) return;
  ConfigMap::Json& file = *map.writes;
  file[count] = model.experts, file["num_experts_per_tok"] = model.active;
  file["output_router_logits"] = model.balance_loss > 0;
  if (model.balance_loss > 0)
    file["router_aux_loss_coef"] = model.balance_loss / static_cast<double>(model.active);
}

TensorNames with_experts(TensorNames names, const char* mlp, const char* gate, const char* up,
                         const char* down, const char* shared) {
  const std::string whole = std::string("model.layers.*.") + mlp, expert = whole + ".experts.#.";
  names = renamed(names, {{"layers.*.feed_forward.up", {expert + gate, expert + up}},
                          {"layers.*.feed_forward.down", {expert + down}}});
  std::vector<TensorName> others = {{"layers.*.feed_forward.router", {whole + ".gate"}}};
  if (shared != nullptr) {
    const std::string network = whole + "." + shared;
    others.push_back({"layers.*.feed_forward.shared.up", {network + "." + gate, network + "." + up}});
    others.push_back({"layers.*.feed_forward.shared.down", {network + "." + down}});
    others.push_back({"layers.*.feed_forward.shared_gate", {network + "_gate"}});
  }
  return with_names(names, "layers.*.attention_output_norm", others);
}

}  // namespace tapeformer
