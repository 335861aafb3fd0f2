#include <tapeformer/nn/formats/families/families.h>

#include <cmath>

namespace tapeformer {

TranslationFamily t5_family() {
  // T5 scales states before a head that is tied to the embeddings; T5 1.1 has neither scale nor tie, though
  // transformers 5 writes that it has the tie.
  const auto describe = [](TranslationMap& map) {
    describe_t5(map, "relu", 8, 2048, 6);
    EncoderDecoderConfig& model = map.model;
    const double width = static_cast<double>(model.layer.width);
    bool is_scaled = model.tie_target_head;
    if (map.reads) is_scaled = map.reads->flag("scale_decoder_outputs", is_scaled);
    map.fixed("head_scale", is_scaled ? 1 / std::sqrt(width) : 1);
  };
  return {"t5", "T5", "T5ForConditionalGeneration", describe, t5_names()};
}

}  // namespace tapeformer
