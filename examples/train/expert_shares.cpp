#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/train/expert_shares.h>

#include <algorithm>

namespace tapeformer {

void add_expert_shares(const LayerRecord& record, const std::function<std::string(Index router)>& layer,
                       Validation& result) {
  double least = 1, most = 0;
  for (std::size_t router = 0; router < record.shares.size(); ++router) {
    const Tensor shares = record.shares[router].to(Device::cpu());
    for (Index e = 0; e < shares.elements(); ++e) {
      result.further.emplace_back(format("expert_share.{}.{}", layer(static_cast<Index>(router)), e),
                                  shares.at(e));
      least = std::min(least, shares.at(e)), most = std::max(most, shares.at(e));
    }
  }
  result.remark += format(", experts with {:.1f} to {:.1f} % of the choices", 100 * least, 100 * most);
}

}  // namespace tapeformer
