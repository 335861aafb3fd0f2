#include <tapeformer/nn/formats/families/families.h>

#include <algorithm>

namespace tapeformer {
namespace {

void describe_heads(ConfigMap& map, Index key_heads) {
  map.has({"attention", "heads", "groups"});
  DecoderOnlyConfig& model = map.model;
  AttentionConfig& attention = model.attention;
  if (map.reads) {
    attention.heads = map.reads->size("num_attention_heads");
    const char* const name = "num_key_value_heads";  // null for as many as queries have
    const bool has_usual = key_heads > 0 && !map.reads->is_null(name);
    const Index groups = map.reads->size(name, has_usual ? key_heads : attention.heads);
    if (groups != attention.heads) attention.kind = groups == 1 ? "mqa" : "gqa";
    if (groups != attention.heads && groups > 1) attention.groups = groups;
  }
  if (map.writes) {
    (*map.writes)["num_attention_heads"] = attention.heads;
    (*map.writes)["num_key_value_heads"] = model.attention_config().resolved().key_heads();
  }
  if (!map.fits) return;
  const auto can_export = [](const std::string& kind) {
    return (attention_kind(kind).can & kCanExport) != 0;
  };
  const bool is_hybrid = !model.attention_pattern.empty() && can_export(model.full_attention);
  fit_kind(model, can_export(attention.kind) ? attention.kind : is_hybrid ? model.full_attention : "mha");
  fit_width(model);
}

/// The width of heads, which is even, as rotary positions rotate pairs of components.
void describe_head_width(ConfigMap& map, Index otherwise) {
  map.has({"head_width"});
  Index& width = map.model.attention.key_width;
  const Index usual = std::max<Index>(head_width_of(map.model), 1);
  if (map.reads) width = map.reads->size("head_dim", otherwise > 0 ? otherwise : usual);
  if (map.writes) (*map.writes)["head_dim"] = usual;
  if (map.fits && usual % 2 != 0) width = usual + 1;
}

}  // namespace

void fit_kind(DecoderOnlyConfig& model, const std::string& kind) {
  AttentionConfig& attention = model.attention;
  attention = attention.of_kind(kind);
  attention.kind = model.full_attention;  // whose fields are there as well
  attention = attention.of_kind(kind);
}

void fit_width(DecoderOnlyConfig& model) {
  const Index heads = model.attention.heads;
  model.width = (model.width + heads - 1) / heads * heads;
}

Index head_width_of(const DecoderOnlyConfig& model) {
  return model.attention.key_width > 0 ? model.attention.key_width : model.width / model.attention.heads;
}

void describe_states(ConfigMap& map, Index context, const char* their_context) {
  map.field("vocab_size", "vocabulary");
  map.field(their_context, "context", context);
  map.field("hidden_size", "width");
  map.field("num_hidden_layers", "layers");
}

void describe_llama_base(ConfigMap& map, Index context, double epsilon, Index key_heads, Index head_width,
                         bool tie_head) {
  describe_states(map, context);
  describe_heads(map, key_heads);
  describe_head_width(map, head_width);
  describe_llama_layers(map, epsilon);
  map.field("attention_dropout", "attention_dropout", 0.0);
  map.field("tie_word_embeddings", "tie_head", tie_head);
}

void describe_llama_layers(ConfigMap& map, double epsilon) {
  map.size("intermediate_size", "feed_forward", map.model.hidden_width());
  map.fixed("norm", std::string("rms"));
  map.field("rms_norm_eps", "epsilon", epsilon);
  map.fixed("positions", std::string("rotary"));
  map.ignore({"pretraining_tp"});  // the same products, computed in slices
}

void fix_heads(ConfigMap& map) {
  map.has({"attention", "head_width"});
  if (!map.fits) return;
  fit_kind(map.model, "mha");
  fix_head_width(map);
}

void fix_head_width(ConfigMap& map) {
  if (!map.fits) return;
  AttentionConfig& attention = map.model.attention;
  fit_width(map.model);
  if (attention.key_width * attention.heads != map.model.width) attention.key_width = 0;
}

void fix_biases(ConfigMap& map, bool inputs, bool output) {
  map.has({"attention_bias", "attention_output_bias"});
  AttentionConfig& attention = map.model.attention;
  attention.bias = inputs;
  if (attention.output_bias.value_or(inputs) != output) attention.output_bias = output;
}

void describe_biases(ConfigMap& map, bool otherwise) {
  map.field("attention_bias", "attention_bias", otherwise);
  fix_biases(map, map.model.attention.bias, map.model.attention.bias);
}

void describe_qk_norms(ConfigMap& map, QkNorm norm) {
  map.has({"qk_norm"});
  AttentionConfig& attention = map.model.attention;
  attention.qk_norm = norm;
  if (map.reads) attention.qk_norm_epsilon = map.model.epsilon;
  if (map.fits) map.model.epsilon = attention.qk_norm_epsilon;
}

void describe_window(ConfigMap& map, Index otherwise) {
  map.has({"window"});
  Index& window = map.model.window;
  if (map.reads) window = map.reads->is_null("sliding_window") ? 0 : otherwise;
  if (map.reads && map.reads->has("sliding_window")) window = map.reads->size("sliding_window");
  if (map.writes) (*map.writes)["sliding_window"] = window > 0 ? ConfigMap::Json(window) : nullptr;
}

void refuse_window(ConfigMap& map) {
  map.demand("sliding_window", nullptr);
  map.demand("use_sliding_window", false);
}

Index first_layer(const DecoderOnlyConfig& model, bool has_window) {
  Index layer = 0;
  while (layer < model.layers && model.has_window(layer) != has_window) ++layer;
  return layer;
}

std::string layer_letters(ConfigMap& map, const std::map<std::string, char>& types,
                          const std::function<char(Index)>& otherwise) {
  const Index layers = map.model.layers;
  constexpr Index kMostLayers = 10000;  // a damaged file may name any number
  if (layers > kMostLayers) map.reads->fail("num_hidden_layers", "is too large");
  std::string letters;
  for (const std::string& type : map.reads->texts("layer_types")) {
    const auto found = types.find(type);
    if (found == types.end())
      map.reads->fail("layer_types", "= " + type + " changes the arithmetic and is not implemented");
    letters += found->second;
  }
  if (letters.empty())
    for (Index i = 0; i < layers; ++i) letters += otherwise(i);
  if (static_cast<Index>(letters.size()) != layers)
    map.reads->fail("layer_types", "must have an entry for each layer");
  return letters;
}

void describe_layer_types(ConfigMap& map, const std::function<bool(Index)>& has_window) {
  map.has({"windows"});
  DecoderOnlyConfig& model = map.model;
  if (map.writes) {
    ConfigMap::Json& types = (*map.writes)["layer_types"] = ConfigMap::Json::array();
    for (Index i = 0; i < model.layers; ++i)
      types.push_back(model.has_window(i) ? "sliding_attention" : "full_attention");
    // Some models of transformers make the mask of windows even if no layer has one; older versions use it.
    if (map.writes->contains("sliding_window") && model.window == 0)
      (*map.writes)["sliding_window"] = std::max<Index>(4096, model.context);
  }
  if (!map.reads) return;
  const std::string letters =
      layer_letters(map, {{"sliding_attention", 'S'}, {"full_attention", 'L'}},
                    [&](Index layer) { return has_window(layer) && model.window > 0 ? 'S' : 'L'; });
  const bool has_sliding = letters.find('S') != std::string::npos;
  if (has_sliding && model.window == 0)
    map.reads->fail("layer_types", "has sliding_attention, but there is no sliding_window");
  if (!has_sliding) model.window = 0;
  if (has_sliding && letters.find('L') != std::string::npos) model.windows = letters;
}

void describe_softcap(ConfigMap& map, const char* theirs, const char* ours, double& c, double otherwise) {
  map.has({ours});
  if (map.reads) c = map.reads->is_null(theirs) ? 0 : map.reads->number(theirs, otherwise);
  if (map.writes) (*map.writes)[theirs] = c > 0 ? ConfigMap::Json(c) : nullptr;
}

TensorNames llama_names(const char* attention_norm, const char* feed_forward_norm) {
  const auto in_layer = [](const char* name) { return std::string("model.layers.*.") + name; };
  return {{{"embedding", {"model.embed_tokens"}},
           {"layers.*.attention_norm", {in_layer(attention_norm)}},
           {"layers.*.attention.query_key_value",
            {in_layer("self_attn.q_proj"), in_layer("self_attn.k_proj"), in_layer("self_attn.v_proj")}},
           {"layers.*.attention.query", {in_layer("self_attn.q_proj")}},
           {"layers.*.attention.key_value", {in_layer("self_attn.k_proj"), in_layer("self_attn.v_proj")}},
           {"layers.*.attention.lambda_vectors",
            {in_layer("self_attn.lambda_q1"), in_layer("self_attn.lambda_k1"),
             in_layer("self_attn.lambda_q2"), in_layer("self_attn.lambda_k2")}},
           {"layers.*.attention.query_norm", {in_layer("self_attn.q_norm")}},
           {"layers.*.attention.key_norm", {in_layer("self_attn.k_norm")}},
           {"layers.*.attention.output", {in_layer("self_attn.o_proj")}},
           {"layers.*.feed_forward_norm", {in_layer(feed_forward_norm)}},
           {"layers.*.attention_output_norm", {in_layer("post_attention_layernorm")}},
           {"layers.*.feed_forward_output_norm", {in_layer("post_feedforward_layernorm")}},
           {"layers.*.feed_forward.up", {in_layer("mlp.gate_proj"), in_layer("mlp.up_proj")}},
           {"layers.*.feed_forward.down", {in_layer("mlp.down_proj")}},
           {"norm", {"model.norm"}},
           {"head", {"lm_head"}}},
          {".rotary_emb.inv_freq"}};
}

TensorNames renamed(TensorNames names, const std::vector<TensorName>& others) {
  for (const TensorName& other : others)
    for (TensorName& name : names.list)
      if (name.ours == other.ours) name.theirs = other.theirs;
  return names;
}

TensorNames with_names(TensorNames names, const std::string& before, const std::vector<TensorName>& others) {
  const auto place = std::find_if(names.list.begin(), names.list.end(),
                                  [&](const TensorName& name) { return name.ours == before; });
  names.list.insert(place, others.begin(), others.end());
  return names;
}

}  // namespace tapeformer
