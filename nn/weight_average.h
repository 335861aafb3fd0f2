#pragma once

#include <tapeformer/nn/module.h>

#include <string>
#include <vector>

namespace tapeformer {

/// Sets the module's weights to the mean of those that save_weights wrote to these files, summed in double.
/// The mean of a training's last checkpoints is often better than each of them. Nothing changes unless all
/// of them fit.
/// Throws:  CheckpointError naming the file and each tensor that is missing, superfluous or of another
///          shape, or if there is no file
/// Source:  Vaswani et al. 2017, arXiv:1706.03762, section 6.1
void average_weights(const std::vector<std::string>& paths, Module& module);

}  // namespace tapeformer
