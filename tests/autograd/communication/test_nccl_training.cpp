#include <tapeformer/tests/autograd/communication/nccl_case.h>
#include <tapeformer/tests/autograd/communication/ranks_case.h>
#include <tapeformer/tests/reference/support.h>

#include <memory>
#include <vector>

using namespace tapeformer;

namespace {

constexpr Index kRows = 6;
constexpr int kSteps = 5;

/// The values after kSteps of training, each rank on its rows of the same batches: in f64, or in bf16.
std::vector<Tensor> trained_values(const std::shared_ptr<Communicator>& ranks, Device device, bool sharded,
                                   DType used = DType::f64, double max_norm = 0.5) {
  const DType type = used == DType::f64 ? used : DType::f32;
  const auto there = [&](const Shape& shape, double seed) { return numbers(shape, seed, type).to(device); };
  const Parameter wide(there({5, 9}, 1)), bias(there({9}, 2)), narrow(there({9, 3}, 3));
  std::vector<Parameter> parameters{wide, bias, narrow};
  for (Parameter& parameter : parameters) parameter.set_shadow(used);
  DataParallel parallel(ranks, parameters, {256, sharded});
  AdamW optimizer(parameters);
  optimizer.set_shards(parallel);
  const Index rows = kRows / ranks->size();
  for (int step = 0; step < kSteps; ++step) {
    const auto own = [&](const Shape& shape, double seed) {
      return slice(numbers(shape, seed, type), 0, ranks->rank() * rows, rows).to(device).to(used);
    };
    const Tensor x = own({kRows, 5}, 10 * step + 6), target = own({kRows, 3}, 10 * step + 7);
    Tape tape;
    const Tensor error = matmul(tanh(matmul(x, wide) + bias), narrow) - target;
    parallel.sum_during(tape);
    tape.backward(sum(error * error));
    parallel.finish();
    optimizer.clipped_step(0.05, 1.0 / kRows, max_norm);
    parallel.gather_values();
    optimizer.clear_gradients();
  }
  std::vector<Tensor> values;
  parallel.with_whole_values([&] {
    for (const Parameter& parameter : parameters)
      values.push_back(parameter.value().to(Device::cpu()).clone());
  });
  return values;
}

}  // namespace

TEST_CASE("GPUs that share a batch train as one process does, with buckets sent during the backward pass") {
  if (!has_gpus(2)) return;
  const std::vector<Tensor> alone = trained_values(communicator_alone(), Device::cpu(), false);
  EmulatedNccl nccl;
  for (const int size : {2, 3}) {
    for (const bool sharded : {false, true}) {
      for (const bool is_early : {false, true}) {
        if (!has_gpus(size)) continue;
        CAPTURE(size);
        CAPTURE(sharded);
        nccl->is_early = is_early;
        std::vector<std::vector<Tensor>> values(static_cast<std::size_t>(size));
        on_gpus(size, [&](Communicator& gpus, Device device) {
          values[static_cast<std::size_t>(gpus.rank())] =
              trained_values(reference::borrowed(gpus), device, sharded);
        });
        for (const std::vector<Tensor>& of_rank : values) {
          for (std::size_t i = 0; i < alone.size(); ++i) {
            CHECK_BELOW(relative_error(of_rank[i], alone[i]), 1e-12);
            CHECK(of_rank[i].to_vector<double>() == values[0][i].to_vector<double>());
          }
        }
      }
    }
  }
}
TEST_CASE("in bf16 GPUs that divide values and state train to the bits of GPUs that do not") {
  if (!has_gpus(2)) return;
  EmulatedNccl nccl;
  for (const int size : {2, 3}) {
    if (!has_gpus(size)) continue;
    CAPTURE(size);
    std::vector<std::vector<float>> first;
    for (const bool sharded : {false, true}) {
      on_gpus(size, [&](Communicator& gpus, Device device) {
        const auto values = trained_values(reference::borrowed(gpus), device, sharded, DType::bf16, 0);
        if (gpus.rank() != size - 1) return;
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (!sharded) first.push_back(values[i].to_vector<float>());
          CHECK(values[i].to_vector<float>() == first[i]);
        }
      });
    }
    CHECK(first.size() == 3);
  }
}
