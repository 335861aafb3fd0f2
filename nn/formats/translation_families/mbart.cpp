#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

TranslationFamily mbart_family() {
  const auto describe = [](TranslationMap& map) { describe_bart(map, true); };
  return {"mbart", "mBART", "MBartForConditionalGeneration", describe, bart_names()};
}

}  // namespace tapeformer
