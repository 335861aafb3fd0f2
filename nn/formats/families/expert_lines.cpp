#include <tapeformer/nn/formats/families/families.h>

#include <algorithm>

namespace tapeformer {
namespace {

/// The number of the first layers without experts from a list, in place of the field for it.
void read_dense_layers(ConfigMap& map, const std::vector<std::string>& types) {
  Index& first = map.model.experts_from;
  if (types.empty()) return;
  first = std::find(types.begin(), types.end(), "sparse") - types.begin();
  const bool fits = static_cast<Index>(types.size()) == map.model.layers && first < map.model.layers &&
                    std::count(types.begin(), types.end(), "dense") == first &&
                    std::count(types.begin() + first, types.end(), "sparse") == map.model.layers - first;
  if (!fits) map.reads->fail("mlp_layer_types", "must be dense in the first layers and sparse in the others");
}

}  // namespace

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

// The network that all tokens pass is as wide as some experts.
void describe_expert_sizes(ConfigMap& map, const ExpertNames& names, double router_scale, Index dense) {
  map.has({"experts", "active_experts", "shared_expert", "experts_from", "balance_loss", "router_z_loss"});
  DecoderOnlyConfig& model = map.model;
  ExpertsConfig& experts = model.experts;
  const auto width = [&] { return experts.width > 0 ? experts.width : model.hidden_width(); };
  map.size("moe_intermediate_size", "expert_width", width());
  if (map.reads) {
    JsonFields& file = *map.reads;
    experts.experts = file.size(names.count);
    experts.active = file.size(names.active);
    experts.shared = file.size(names.shared) * width();
    experts.balance_loss = 0;
    model.experts_from = file.count("first_k_dense_replace", dense);
    read_dense_layers(map, file.texts("mlp_layer_types"));
    if (model.experts_from >= model.layers)
      file.fail("first_k_dense_replace",
                "must be below num_hidden_layers: models without experts are not implemented");
    file.demand("moe_layer_freq", 1);
  }
  if (map.fits) {
    if (experts.experts == 0) experts.experts = experts.active;
    experts.shared = std::max<Index>((experts.shared + width() - 1) / width(), 1) * width();
  }
  map.field("routed_scaling_factor", "router_scale", router_scale);
  if (!map.writes) return;
  ConfigMap::Json& file = *map.writes;
  file[names.count] = experts.experts, file[names.active] = experts.active;
  file[names.shared] = experts.shared / width();
  file["first_k_dense_replace"] = model.experts_from;
}

TensorNames with_shared_experts(TensorNames names, const char* mlp, const char* gate, const char* up,
                                const char* down) {
  const std::string module = std::string("model.layers.*.") + mlp + ".", expert = module + "experts.#.",
                    shared = module + "shared_experts.", router = "layers.*.feed_forward.router";
  names = renamed(names, {{"layers.*.feed_forward.up", {module + "gate_proj", module + "up_proj"}},
                          {"layers.*.feed_forward.down", {module + "down_proj"}}});
  names = with_names(names, "norm",
                     {{router, {module + "gate"}},
                      {"layers.*.feed_forward.choice_bias", {module + "gate.e_score_correction_bias"}},
                      {"layers.*.feed_forward.shared.up", {shared + "gate_proj", shared + "up_proj"}},
                      {"layers.*.feed_forward.shared.down", {shared + "down_proj"}}});
  return with_names(names, "layers.*.feed_forward.up",
                    {{"layers.*.feed_forward.up", {expert + gate, expert + up}, 0, {}, router},
                     {"layers.*.feed_forward.down", {expert + down}, 0, {}, router}});
}

}  // namespace tapeformer
