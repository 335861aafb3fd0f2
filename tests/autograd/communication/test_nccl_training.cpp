#include <tapeformer/tests/autograd/communication/nccl_case.h>
#include <tapeformer/tests/autograd/communication/ranks_case.h>

#include <vector>

using namespace tapeformer;

namespace {

/// The values of each of `size` GPUs.
std::vector<std::vector<Tensor>> trained_on_gpus(int size, const RanksRun& run) {
  std::vector<std::vector<Tensor>> values(static_cast<std::size_t>(size));
  on_gpus(size, [&](Communicator& gpus, Device device) {
    values[static_cast<std::size_t>(gpus.rank())] = trained_rank(gpus, run, {}, device);
  });
  return values;
}

}  // namespace

TEST_CASE("GPUs that share a batch train as one process does, with buckets sent during the backward pass") {
  if (!has_gpus(2)) return;
  RanksRun run;
  run.to = 5;
  const std::vector<Tensor> alone = trained(1, run)[0];
  EmulatedNccl nccl;
  for (const int size : {2, 3}) {
    for (const bool sharded : {false, true}) {
      for (const bool is_early : {false, true}) {
        if (!has_gpus(size)) continue;
        CAPTURE(size);
        CAPTURE(sharded);
        nccl->is_early = is_early;
        run.sharded = sharded;
        const std::vector<std::vector<Tensor>> values = trained_on_gpus(size, run);
        CHECK_BELOW(error_of(values, alone), 1e-12);
        for (const std::vector<Tensor>& of_rank : values)
          for (std::size_t i = 0; i < alone.size(); ++i)
            CHECK(of_rank[i].to_vector<double>() == values[0][i].to_vector<double>());
      }
    }
  }
}

TEST_CASE("in bf16 GPUs that divide values and state train to the bits of GPUs that do not") {
  if (!has_gpus(2)) return;
  RanksRun run;
  run.type = DType::f32, run.in_bf16 = true, run.max_norm = 0, run.to = 5;
  for (const int size : {2, 3}) {
    if (!has_gpus(size)) continue;
    CAPTURE(size);
    run.sharded = false;
    const std::vector<Tensor> whole = trained_on_gpus(size, run).back();
    run.sharded = true;
    const std::vector<Tensor> divided = trained_on_gpus(size, run).back();
    for (std::size_t i = 0; i < whole.size(); ++i)
      CHECK(divided[i].to_vector<float>() == whole[i].to_vector<float>());
  }
}
