#pragma once

#include <tapeformer/nn/formats/safetensors.h>
#include <tapeformer/nn/module.h>

#include <string>

namespace tapeformer {

/// Everything a module has learnt: its parameters by path. Buffers follow from the config.
std::vector<std::pair<std::string, Tensor>> weights_of(Module& module);

/// Writes the weights as one safetensors file, to a temporary file first: the old one stays until the new one
/// is on the disk.
/// Throws:  CheckpointError
void save_weights(const std::string& path, Module& module);

/// A value of the file for each of weights_of(module), in the same order, of the file's type.
/// Throws:  CheckpointError naming each tensor that is missing, superfluous or of another shape
std::vector<Tensor> weights_in(const SafetensorsFile& file, const std::string& prefix, Module& module);

/// Loads what save_weights wrote. Nothing changes unless everything fits.
/// Throws:  CheckpointError naming the file and each tensor that is missing, superfluous or of another shape
void load_weights(const std::string& path, Module& module);
/// The same from an open file, where the tensors' names begin with `prefix`.
void load_weights(const SafetensorsFile& file, const std::string& prefix, Module& module);

}  // namespace tapeformer
