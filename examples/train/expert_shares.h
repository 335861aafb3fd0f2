#pragma once

#include <tapeformer/examples/train/task.h>
#include <tapeformer/nn/layer_record.h>

namespace tapeformer {

/// Adds each expert's share of its router's choices to a validation's fields, and the extremes to its remark.
/// `layer` names the layer of a router: "0", "encoder.0".
void add_expert_shares(const LayerRecord& record, const std::function<std::string(Index router)>& layer,
                       Validation& result);

}  // namespace tapeformer
