#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {
namespace {

/// Embeddings of both sides and the head in one table, or in one per side, with the head tied or not.
void describe_ties(TranslationMap& map) {
  EncoderDecoderConfig& model = map.model;
  map.has({"tie_embeddings", "tie_target_head"});
  if (map.reads) {
    model.tie_embeddings = map.reads->flag("share_encoder_decoder_embeddings", true);
    model.tie_target_head = map.reads->flag("tie_word_embeddings", true);
    if (model.tie_embeddings && !model.tie_target_head)
      map.reads->fail("tie_word_embeddings",
                      "= false unties shared embeddings too, which is not implemented");
  }
  if (map.writes) {
    (*map.writes)["share_encoder_decoder_embeddings"] = model.tie_embeddings;
    (*map.writes)["tie_word_embeddings"] = model.tie_target_head;
  }
  if (map.fits && model.tie_embeddings) model.tie_target_head = true;
}

void describe_marian(TranslationMap& map) {
  describe_bart_sizes(map, 1024);
  refuse_layer_drop(map);
  map.fixed("positions", std::string("sinusoidal_halves"));
  describe_ties(map);
  describe_bart_norms(map, false, false);
  map.demand("static_position_embeddings", true);
}

}  // namespace

TranslationFamily marian_family() {
  TensorNames names = bart_names();
  names.constants.push_back(".embed_positions.weight");
  return {"marian", "MarianMT", "MarianMTModel", describe_marian, names};
}

}  // namespace tapeformer
