#pragma once

#include <tapeformer/nn/formats/safetensors.h>
#include <tapeformer/nn/module.h>

#include <string>
#include <vector>

namespace tapeformer {

/// The parameters of a module by path. Buffers follow from the configuration and are not saved.
std::vector<std::pair<std::string, Tensor>> weights_of(Module& module);

/// Writes the weights as one safetensors file. The old file stays until the new one is on the disk.
/// Throws:  CheckpointError
void save_weights(const std::string& path, Module& module);

/// Loads weights that save_weights wrote. Nothing changes unless everything fits.
/// Throws:  CheckpointError naming the file and each tensor that is missing, superfluous or of another shape
void load_weights(const std::string& path, Module& module);
/// Loads them from an open file, in which their names begin with `prefix`; other tensors are ignored.
void load_weights(const SafetensorsFile& file, const std::string& prefix, Module& module);

/// Sets the module's weights to the mean of those that save_weights wrote to these files, summed in double.
/// The mean of a run's last checkpoints is often better than each of them. Nothing changes unless all fit.
/// Throws:  CheckpointError as load_weights, or if there is no file
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 6.1
void average_weights(const std::vector<std::string>& paths, Module& module);

}  // namespace tapeformer
