#include <tapeformer/nn/formats/families/families.h>

#include <cmath>

namespace tapeformer {
namespace {

/// The whole number n for which the scale of scores is 1 / sqrt(n); 0 if there is none.
Index whole_number(double score_scale) {
  const double n = std::round(1 / (score_scale * score_scale));
  return n < 1e9 && 1 / std::sqrt(n) == score_scale ? static_cast<Index>(n) : 0;
}

}  // namespace

void describe_gemma(ConfigMap& map) {
  map.activation("hidden_activation", "gelu_pytorch_tanh", true);
  map.fixed("embedding_scale", 0.0);
  map.fixed("sublayer_norms", std::string("both"));
  map.fixed("feed_forward_bias", false);
  map.demand("use_bidirectional_attention", false);
  // An older name, which transformers does not read either, and how it keeps keys and values.
  map.ignore({"hidden_act", "cache_implementation"});
  map.has({"score_scale"});
  double& scale = map.model.attention.score_scale;
  if (map.reads) scale = 1 / std::sqrt(map.reads->number("query_pre_attn_scalar", 256));
  if (map.writes) (*map.writes)["query_pre_attn_scalar"] = whole_number(scale);
  if (map.fits && whole_number(scale) == 0)
    scale = 1 / std::sqrt(static_cast<double>(head_width_of(map.model)));
}

void describe_softcap(ConfigMap& map, const char* theirs, const char* ours, double& c, double otherwise) {
  map.has({ours});
  if (map.reads) c = map.reads->is_null(theirs) ? 0 : map.reads->number(theirs, otherwise);
  if (map.writes) (*map.writes)[theirs] = c > 0 ? ConfigMap::Json(c) : nullptr;
}

TensorNames gemma_names() {
  TensorNames names = llama_names("input_layernorm", "pre_feedforward_layernorm");
  names.form = kGainsLessOne;
  return names;
}

}  // namespace tapeformer
