// The sum of all ranks' numbers, on the CPU or between GPUs: time and rate by size.
// Usage: mpirun -n N bench communication [--device cpu|cuda] [--seconds S] [--most MIB]
#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/communication/nccl.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/ranks.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/clock.h>

#include <cstdio>
#include <memory>
#include <vector>

using namespace tapeformer;

namespace {

constexpr Index kLeastBytes = 4096;

/// Of one sum, when the tensor holds it.
double sum_seconds(Communicator& ranks, const Tensor& x) {
  const double begun = now();
  ranks.all_reduce(x).wait();
  if (x.device().is_cuda()) cuda::synchronize(x.device().index);
  return now() - begun;
}

/// The median over `seconds`, as rank 0 sees it, which also says when it is enough.
double median_seconds(Communicator& ranks, const Tensor& x, double seconds) {
  sum_seconds(ranks, x);  // connections are made
  std::vector<double> each;
  const double begun = now();
  do {
    each.push_back(sum_seconds(ranks, x));
  } while (ranks.sum({ranks.rank() == 0 && now() - begun > seconds ? 1.0 : 0.0})[0] == 0);
  return median(each);
}

}  // namespace

int tapeformer::bench_communication(int argc, char** argv) {
  const CommandLine line("the sum of all ranks' numbers: time and rate by size");
  std::string device = "cpu";
  double seconds = 0.5;
  Index most = 256;
  line.option("--device", device);
  line.option("--seconds", seconds, "for each size");
  line.option("--most", most, "MiB");
  if (!line.read(argc, argv)) return 0;
  std::shared_ptr<Communicator> ranks = join_launch();
  if (ranks->size() == 1) {
    std::printf("there is only one process; try mpirun -n 2 bench communication\n");
    return 0;
  }
  Compute compute;
  compute.device = Device::named(device);
  const std::string note = share_machine(*ranks, compute);
  if (compute.device.is_cuda()) ranks = nccl_communicator(ranks, compute.device.index);
  const bool writes = ranks->rank() == 0;
  if (writes && !note.empty()) std::printf("%s\n", note.c_str());
  if (writes) std::printf("%d ranks, f32\n%12s %12s %10s\n", ranks->size(), "bytes", "ms", "GB/s");
  for (Index bytes = kLeastBytes; bytes <= most << 20; bytes *= 4) {
    const Tensor x = Tensor::zeros({bytes / 4}, DType::f32, compute.device);
    const double taken = median_seconds(*ranks, x, seconds);
    if (writes)
      std::printf("%12lld %12.3f %10.3f\n", static_cast<long long>(bytes), 1e3 * taken,
                  1e-9 * static_cast<double>(bytes) / taken);
  }
  return 0;
}
