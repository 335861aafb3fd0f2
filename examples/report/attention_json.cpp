#include <tapeformer/autograd/config/json.h>
#include <tapeformer/examples/report/attention_json.h>

#include <cmath>

namespace tapeformer {

Json attention_json(const std::vector<Tensor>& weights, const std::string& layer_name,
                    const std::vector<std::string>& rows, const std::vector<std::string>& columns) {
  Json layers = Json::array();
  Index layer = -1;
  for (const Tensor& given_bhts : weights) {
    ++layer;
    if (!given_bhts.defined()) continue;
    const Tensor weights_bhts = given_bhts.to(Device::cpu());
    const Index heads = weights_bhts.size(1), queries = weights_bhts.size(2), keys = weights_bhts.size(3);
    Json of_heads = Json::array();
    for (Index head = 0; head < heads; ++head) {
      Json of_rows = Json::array();
      for (Index t = 0; t < queries; ++t) {
        Json row = Json::array();
        for (Index s = 0; s < keys; ++s)
          row.push_back(std::round(1000 * weights_bhts.at((head * queries + t) * keys + s)) / 1000);
        of_rows.push_back(std::move(row));
      }
      of_heads.push_back(std::move(of_rows));
    }
    layers.push_back({{"name", layer_name + " " + std::to_string(layer)}, {"heads", std::move(of_heads)}});
  }
  if (layers.empty()) return {};
  return {{"rows", rows}, {"columns", columns}, {"layers", std::move(layers)}};
}

}  // namespace tapeformer
