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

void describe_deepseek(ConfigMap& map, Index context, double router_scale, Index dense, double epsilon) {
  describe_states(map, context);
  describe_llama_layers(map, epsilon);
  describe_latent_attention(map);
  describe_score_scale(map);
  if (map.reads) map.model.attention.rotations.layout = RotaryLayout::interleaved;
  describe_expert_sizes(map, {"n_routed_experts", "num_experts_per_tok", "n_shared_experts"}, router_scale,
                        dense);
  map.field("tie_word_embeddings", "tie_head", false);
  // The loss that balances experts is for a trainer, and the rest has no effect on a model's arithmetic.
  map.ignore({"aux_loss_alpha", "seq_aux", "router_aux_loss_coef", "output_router_logits", "ep_size",
              "num_nextn_predict_layers"});
}

void describe_biased_choice(ConfigMap& map, Index groups, Index active_groups) {
  map.fixed("router", std::string("sigmoid"));
  map.fixed("balance", std::string("bias"));
  map.field("norm_topk_prob", "normalized_router", true);
  map.field("n_group", "expert_groups", groups);
  map.field("topk_group", "active_groups", active_groups);
  map.demand("scoring_func", "sigmoid");
  map.demand("topk_method", "noaux_tc");
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

TensorNames deepseek_names() {
  TensorNames names = with_shared_experts(latent_names(), "mlp", "gate_proj", "up_proj", "down_proj");
  names.form |= kInterleaved;
  return names;
}

}  // namespace tapeformer
