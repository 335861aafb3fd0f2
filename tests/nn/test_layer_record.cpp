#include <tapeformer/nn/layer_record.h>
#include <tapeformer/tests/nn/module_case.h>

using namespace tapeformer;

TEST_CASE("a loss gets the mean of the routers' losses and that of the indexers'") {
  const auto number = [](double value) { return Tensor::full({}, value, DType::f64); };
  LayerRecord record;
  CHECK(with_layer_losses(number(3), record).item() == 3);
  record.shares = {number(0), number(0)};
  CHECK(with_layer_losses(number(3), record).item() == 3);
  record.router_losses = number(5);
  CHECK(with_layer_losses(number(3), record).item() == 5.5);
  record.index_losses = number(8), record.indexers = 4;
  CHECK(with_layer_losses(number(3), record).item() == 7.5);
}
