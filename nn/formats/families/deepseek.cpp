#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// Fields that DeepSeek V2 and V3 have in common, with the defaults of max_position_embeddings,
/// routed_scaling_factor, first_k_dense_replace and rms_norm_eps: all but the scores and the choice of
/// experts.
void describe_deepseek(ConfigMap& map, Index context, double router_scale, Index dense,
                       double epsilon = 1e-6) {
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

/// Scores and choice of experts of DeepSeek V3 and its relatives, with the defaults of n_group and
/// topk_group.
void describe_biased_choice(ConfigMap& map, Index groups, Index active_groups) {
  map.fixed("router", std::string("sigmoid"));
  map.fixed("balance", std::string("bias"));
  map.field("norm_topk_prob", "normalized_router", true);
  map.field("n_group", "expert_groups", groups);
  map.field("topk_group", "active_groups", active_groups);
  map.demand("scoring_func", "sigmoid");
  map.demand("topk_method", "noaux_tc");
}

/// These names with experts in some layers, whose rotary rows are interleaved.
TensorNames deepseek_names() {
  TensorNames names = with_shared_experts(latent_names(), "mlp", "gate_proj", "up_proj", "down_proj");
  names.form |= kInterleaved;
  return names;
}

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

/// A list with an expected entry for each layer; it is not written.
void demand_layers(ConfigMap& map, const char* name,
                   const std::function<bool(const std::string& type)>& is_expected) {
  if (!map.reads) return;
  const std::vector<std::string> types = map.reads->texts(name);
  if (types.empty()) return;
  if (static_cast<Index>(types.size()) != map.model.layers)
    map.reads->fail(name, "must have an entry for each layer");
  for (std::size_t i = 0; i < types.size(); ++i)
    if (!is_expected(types[i]))
      map.reads->fail(name, "= " + types[i] + " in layer " + std::to_string(i) +
                                " changes the arithmetic and is not implemented");
}

/// The indexer of sparse attention, which rotates rows in this layout, with the default of index_n_heads, and
/// the types of layers; after the rest.
void describe_indexer(ConfigMap& map, RotaryLayout layout, Index heads) {
  map.has({"index_top_k", "index_heads", "index_width", "index_loss"});
  AttentionConfig& attention = map.model.attention;
  map.fixed("index_rotary_layout", std::string(name_of(layout)));
  if (map.reads) {
    JsonFields& file = *map.reads;
    file.size("q_lora_rank");  // throws without one
    attention.index_top_k = file.size("index_topk", 2048);
    attention.index_heads = file.size("index_n_heads", heads);
    attention.index_width = file.size("index_head_dim", 128);
    attention.index_loss = 0;  // which is for a trainer
  }
  if (map.fits) {
    if (attention.index_top_k == 0) attention.index_top_k = map.model.context;
    if (attention.query_latent_width == 0) attention.query_latent_width = map.model.width;
  }
  if (map.writes) {
    const AttentionConfig full = map.model.attention_config().resolved();
    ConfigMap::Json& file = *map.writes;
    file["index_topk"] = full.index_top_k;
    file["index_n_heads"] = full.index_heads, file["index_head_dim"] = full.index_width;
  }
  demand_layers(map, "layer_types", [](const std::string& type) {
    return type == "indexed_attention" || type == "deepseek_sparse_attention";  // the older name
  });
  demand_layers(map, "indexer_types", [](const std::string& type) { return type == "full"; });
}

/// The names above and those of the indexer.
TensorNames sparse_deepseek_names() {
  std::vector<TensorName> indexer;
  for (const auto& [ours, theirs] :
       {std::pair("query", "wq_b"), {"key", "wk"}, {"key_norm", "k_norm"}, {"weights", "weights_proj"}})
    indexer.push_back({std::string("layers.*.attention.indexer.") + ours,
                       {std::string("model.layers.*.self_attn.indexer.") + theirs}});
  return with_names(deepseek_names(), "layers.*.attention.query_down", indexer);
}

}  // namespace

Family deepseek_v2_family() {
  return {"deepseek_v2", "DeepSeek V2", "DeepseekV2ForCausalLM", describe_deepseek_v2, deepseek_names()};
}

Family deepseek_v3_family() {
  const auto describe = [](ConfigMap& map) {
    describe_deepseek(map, 4096, 2.5, 3);
    if (map.reads && !map.reads->flag("rope_interleave", true))
      map.model.attention.rotations.layout = RotaryLayout::half_split;
    describe_biased_choice(map, 8, 4);
  };
  return {"deepseek_v3", "DeepSeek V3", "DeepseekV3ForCausalLM", describe, deepseek_names()};
}

Family deepseek_v32_family() {
  const auto describe = [](ConfigMap& map) {
    describe_deepseek(map, 163840, 2.5, 3);
    describe_biased_choice(map, 8, 4);
    describe_indexer(map, RotaryLayout::half_split, 64);
  };
  return {"deepseek_v32", "DeepSeek V3.2", "DeepseekV32ForCausalLM", describe, sparse_deepseek_names()};
}

Family glm_moe_dsa_family() {
  const auto describe = [](ConfigMap& map) {
    describe_deepseek(map, 202752, 2.5, 3, 1e-5);
    describe_biased_choice(map, 1, 1);
    describe_indexer(map, RotaryLayout::interleaved, 32);
  };
  return {"glm_moe_dsa", "GLM 5", "GlmMoeDsaForCausalLM", describe, sparse_deepseek_names()};
}

}  // namespace tapeformer
