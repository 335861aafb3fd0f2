#include <tapeformer/nn/formats/families/families.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

/// The multipliers of embeddings, of sublayers' outputs and of the states before the head.
void describe_multipliers(ConfigMap& map) {
  map.has({"embedding_scale", "residual_scale", "head_scale"});
  DecoderOnlyConfig& model = map.model;
  const auto C = static_cast<double>(model.width), root = std::sqrt(static_cast<double>(model.layers));
  if (map.reads) {
    model.embedding_scale = map.reads->number("scale_emb", 12);
    // null is not 1.4 or 256, but no scale.
    const auto is_null = [&](const char* name) { return map.reads->is_null(name); };
    model.residual_scale = is_null("scale_depth") ? 1 : map.reads->number("scale_depth", 1.4) / root;
    model.head_scale = is_null("dim_model_base") ? 1 : map.reads->number("dim_model_base", 256) / C;
  }
  if (map.fits && model.embedding_scale == 0) model.embedding_scale = std::sqrt(C);
  const double base = std::max(std::round(model.head_scale * C), 1.0);  // a whole number in the file
  if (map.fits && std::abs(base - model.head_scale * C) > 1e-9 * base) model.head_scale = base / C;
  if (!map.writes) return;
  ConfigMap::Json& file = *map.writes;
  file["scale_emb"] = model.embedding_scale;
  file["scale_depth"] = model.residual_scale * root;
  file["dim_model_base"] = static_cast<Index>(base);
}

void describe_minicpm3(ConfigMap& map) {
  if (map.fits) fit_width(map.model);  // as transformers demands
  describe_states(map, 32768);
  describe_llama_layers(map, 1e-5);
  describe_latent_attention(map);
  describe_score_scale(map);
  describe_multipliers(map);
  map.field("tie_word_embeddings", "tie_head", true);
}

}  // namespace

Family minicpm3_family() {
  return {"minicpm3", "MiniCPM3", "MiniCPM3ForCausalLM", describe_minicpm3, latent_names()};
}

}  // namespace tapeformer
