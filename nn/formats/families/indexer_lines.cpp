#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

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

}  // namespace

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

TensorNames sparse_deepseek_names() {
  std::vector<TensorName> indexer;
  for (const auto& [ours, theirs] :
       {std::pair("query", "wq_b"), {"key", "wk"}, {"key_norm", "k_norm"}, {"weights", "weights_proj"}})
    indexer.push_back({std::string("layers.*.attention.indexer.") + ours,
                       {std::string("model.layers.*.self_attn.indexer.") + theirs}});
  return with_names(deepseek_names(), "layers.*.attention.query_down", indexer);
}

}  // namespace tapeformer
