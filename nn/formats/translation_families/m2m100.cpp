#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

TranslationFamily m2m100_family() {
  const auto describe = [](TranslationMap& map) {
    describe_bart_sizes(map, 1024, "relu", true, 0.1);
    describe_one_vocabulary(map);
    describe_bart_norms(map, true, false);
    map.fixed("positions", std::string("sinusoidal_fairseq"));
    map.fixed("head_bias", false);
    map.demand("pad_token_id", 1);  // positions are counted from the next number on
    // Layers are dropped at random in training, which we do not do.
    map.ignore({"encoder_layerdrop", "decoder_layerdrop"});
    if (map.writes)
      (*map.writes)["encoder_layerdrop"] = (*map.writes)["decoder_layerdrop"] = 0.0,
      (*map.writes)["pad_token_id"] = 1;
  };
  TensorNames names = bart_names();
  names.constants.push_back(".embed_positions.weights");
  return {"m2m_100", "M2M100", "M2M100ForConditionalGeneration", describe, names};
}

}  // namespace tapeformer
