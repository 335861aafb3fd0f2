#include <tapeformer/nn/formats/families/families.h>

namespace tapeformer {

TranslationFamily mt5_family() {
  const auto describe = [](TranslationMap& map) { describe_t5(map, "gated-gelu", 6, 1024, 8); };
  return {"mt5", "mT5", "MT5ForConditionalGeneration", describe, t5_names()};
}

}  // namespace tapeformer
