#pragma once

#include <tapeformer/nn/transformer/decoder_only_config.h>

#include <string>

namespace tapeformer {

constexpr int kConfigLevels = 16;  ///< the deepest nesting of a config.json that is read

/// The model that a config.json of transformers describes, of a type in hugging_face_families(). Fields that
/// do not affect the arithmetic (token ids, generation, versions; names that begin with an underscore) are
/// skipped. All others must be implemented, or the file is refused, unknown fields included: transformers
/// keeps adding fields, and whoever knows that one is harmless can delete it.
/// Throws:  CheckpointError naming a field that is missing or damaged, that changes the arithmetic and is not
///          implemented, or that is unknown
DecoderOnlyConfig hugging_face_config(const std::string& json);

}  // namespace tapeformer
