#pragma once

#include <tapeformer/nn/formats/family.h>

// The families, each a file next to this one; for sources only.
namespace tapeformer {

Family gpt2_family();
Family llama_family();
Family mistral_family();
Family qwen2_family();
Family qwen3_family();
Family olmo2_family();
Family gemma2_family();
Family gemma3_family();

}  // namespace tapeformer
