#include <doctest/doctest.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/optim/multi_tensor_list.h>
#include <tapeformer/tests/optim/optim_case.h>
#include <tapeformer/tests/reference/support.h>

using namespace tapeformer;

namespace {

/// The content of the list after adding every parameter that has a gradient.
kernels::StepTensors filled(MultiTensorList& table, const std::vector<Parameter>& parameters,
                            Index setting = 0) {
  table.begin("step");
  for (const Parameter& parameter : parameters)
    if (parameter.gradient().defined()) table.add(parameter, {}, {}, setting);
  table.end();
  return table.tensors();
}

}  // namespace

TEST_CASE("a table says where things are and how many") {
  OptimCase model(DType::f32);
  model.set_gradients(0);
  MultiTensorList table;
  CHECK(table.empty());
  const kernels::StepTensors all = filled(table, model.parameters(), 3);
  CHECK_FALSE(table.empty());
  CHECK(all.tensor_count == 2);
  if (default_device().is_cuda()) return;  // there only kernels may look
  CHECK(all.tensors[0].value == model.weight.value().raw());
  CHECK(all.tensors[0].gradient == model.weight.gradient().raw());
  CHECK(all.tensors[0].count == 6);
  CHECK(all.tensors[1].count == 3);
  CHECK(all.tensors[1].setting == 3);
  CHECK(all.tensors[1].state1 == nullptr);
  CHECK(all.tensors[1].shadow == nullptr);
}

TEST_CASE("for a parameter that ranks divide, it says where the process's own part is") {
  OptimCase model(DType::f32);
  model.set_gradients(0);
  model.weight.set_shadow(DType::bf16);
  model.weight.state()->updated = {1, 5};
  model.bias.state()->updated = {3, 3};
  const Tensor own = Tensor::zeros({4});
  MultiTensorList table;
  table.begin("step");
  table.add(model.weight, own, {}, 0);
  table.add(model.bias, Tensor::zeros({0}), {}, 0);
  CHECK(message_of<ShapeError>([&] { table.add(model.weight, own, model.weight.value(), 0); }) ==
        "[step] a parameter's state must have the elements that this process updates; got state=f32[2,3] "
        "(layer.weight) for 4 elements of f32[2,3] (layer.weight); try zeros_like_parameters(), and "
        "DataParallel before the optimizer");
  table.end();
  CHECK(table.tensors().tensor_count == 1);
  if (default_device().is_cuda()) return;
  const kernels::StepTensor& entry = table.tensors().tensors[0];
  CHECK(entry.value == model.weight.value().data<float>() + 1);
  CHECK(entry.gradient == model.weight.gradient().data<float>() + 1);
  CHECK(entry.shadow == model.weight.used().data<BFloat16>() + 1);
  CHECK(entry.state1 == own.raw());
  CHECK(entry.count == 4);
}

TEST_CASE("it stays where it is until an address, a setting or the parameters that have gradients change") {
  OptimCase model(DType::f32);
  model.set_gradients(0);
  MultiTensorList table;
  const kernels::StepTensors first = filled(table, model.parameters());
  const auto is_first = [&](const kernels::StepTensors& all) {
    return all.tensors == first.tensors && all.chunks == first.chunks && all.tensor_count == 2;
  };
  CHECK(is_first(filled(table, model.parameters())));
  if (!default_device().is_cuda()) return;
  CHECK_FALSE(is_first(filled(table, model.parameters(), 1)));
  CHECK_FALSE(filled(table, model.parameters(), 2).tensors == filled(table, model.parameters(), 3).tensors);
  const Tensor kept = model.bias.gradient();
  const kernels::StepTensors before = filled(table, model.parameters());
  set_gradient(model.bias, kept.clone());
  const kernels::StepTensors moved = filled(table, model.parameters());
  CHECK_FALSE(moved.tensors == before.tensors);
  model.bias.set_shadow(DType::bf16);
  CHECK_FALSE(filled(table, model.parameters()).tensors == moved.tensors);
  model.bias.clear_gradient();
  CHECK(filled(table, model.parameters()).tensor_count == 1);
  CHECK(filled(table, model.parameters()).chunk_count == 1);
}

TEST_CASE("large parameters have several chunks, empty ones none") {
  if (!default_device().is_cuda()) return;
  std::vector<Parameter> parameters;
  for (const Index count : {Index{0}, kernels::kStepChunk, kernels::kStepChunk + 1}) {
    parameters.emplace_back(Tensor::zeros({count}));
    set_gradient(parameters.back(), Tensor::zeros({count}));
  }
  MultiTensorList table;
  CHECK(filled(table, parameters).chunk_count == 3);
  CHECK(filled(table, parameters).tensor_count == 3);
}

TEST_CASE("gradients of another type or on another device are refused") {
  OptimCase model(DType::f32);
  model.set_gradients(0);
  set_gradient(model.bias, Tensor::zeros({3}, DType::f64));
  MultiTensorList table;
  CHECK_THROWS_AS(filled(table, model.parameters()), DTypeError);
  OptimCase wide(DType::f64);
  wide.set_gradients(0);
  set_gradient(wide.bias, Tensor::zeros({3}, DType::f32));
  CHECK_THROWS_AS(filled(table, wide.parameters()), DTypeError);
  if (!default_device().is_cuda()) return;
  set_gradient(model.bias, Tensor::zeros({3}, DType::f32, Device::cpu()));
  CHECK_THROWS_WITH_AS(filled(table, model.parameters()),
                       "[step] gradient must be on the device of the values; got gradient=f32[3] on cpu, "
                       "values=f32[2,3] (layer.weight) on cuda:0; try gradient.to(Device)",
                       DeviceError);
}
