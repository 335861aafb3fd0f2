#pragma once

#include <tapeformer/nn/formats/safetensors.h>
#include <tapeformer/nn/module.h>

#include <string>

namespace tapeformer {

/// The parameters of a module by path. Buffers follow from the configuration and are not saved.
std::vector<std::pair<std::string, Tensor>> weights_of(Module& module);

/// Writes the weights as one safetensors file. The old file stays until the new one is on the disk.
/// Throws:  CheckpointError
void save_weights(const std::string& path, Module& module);

/// The file's values for weights_of(module), in the same order and of the file's type.
/// Throws:  CheckpointError naming each tensor that is missing, superfluous or of another shape
std::vector<Tensor> weights_in(const SafetensorsFile& file, const std::string& prefix, Module& module);

/// Loads weights that save_weights wrote. Nothing changes unless everything fits.
/// Throws:  CheckpointError naming the file and each tensor that is missing, superfluous or of another shape
void load_weights(const std::string& path, Module& module);
/// The same from an open file, where the tensors' names begin with `prefix`.
void load_weights(const SafetensorsFile& file, const std::string& prefix, Module& module);

}  // namespace tapeformer
