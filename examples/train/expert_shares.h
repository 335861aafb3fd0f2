#pragma once

#include <tapeformer/examples/train/task.h>
#include <tapeformer/nn/experts.h>

namespace tapeformer {

/// Adds each expert's share of its router's choices to a validation's fields, and the extremes to its remark.
/// `layer` names the layer of a router: "0", "encoder.0".
void add_expert_shares(const RouterRecord& routers, const std::function<std::string(Index router)>& layer,
                       Validation& result);

}  // namespace tapeformer
