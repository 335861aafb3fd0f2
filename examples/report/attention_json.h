#pragma once

#include <tapeformer/autograd/tensor.h>
#include <tapeformer/examples/shared/run_folder.h>

#include <string>
#include <vector>

namespace tapeformer {

/// Attention weights for a report, as TrainingTask::attention_example() gives them, to three decimals.
/// Layers whose weights are undefined are left out, and nothing is left where all are.
/// Shapes:  weights of each layer [1, H, T, S]; T row and S column labels
Json attention_json(const std::vector<Tensor>& weights, const std::string& layer_name,
                    const std::vector<std::string>& rows, const std::vector<std::string>& columns);

}  // namespace tapeformer
