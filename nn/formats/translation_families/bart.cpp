#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

TranslationFamily bart_family() {
  const auto describe = [](TranslationMap& map) { describe_bart(map, false); };
  return {"bart", "BART", "BartForConditionalGeneration", describe, bart_names()};
}

}  // namespace tapeformer
