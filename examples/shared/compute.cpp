#include <tapeformer/autograd/cuda_graph_cache.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/autograd/system/threads.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/compute.h>

namespace tapeformer {

void Compute::apply(Module& model) const {
  const bool rounds = precision == "bf16" && !device.is_cuda();
  set_matmul_precision(precision == "tf32" ? MatmulPrecision::tf32
                       : rounds            ? MatmulPrecision::bf16
                                           : MatmulPrecision::f32);
  use_threads(static_cast<int>(threads));
  model.to(device);
  if (precision == "bf16" && device.is_cuda()) model.compute_in(DType::bf16);
}

std::string Compute::text() const {
  return "computes on " + device.text() +
         (device.is_cuda() ? " (" + cuda::device_name(device.index) + ")" : "") + " in " + precision;
}

std::string Compute::usage_text() const {
  const Index replayed = CudaGraphCache::counts_of_all().replayed;
  return text() + "; " + peak_memory_text(device) +
         (replayed > 0 ? "; " + number_of(replayed, "step") + " as " + (replayed == 1 ? "a graph" : "graphs")
                       : "");
}

void add_threads_option(const Command& command, Index& threads, const std::string& help) {
  constexpr NumberRule kThreads{"must be from 0 to 4096", [](double x) { return x >= 0 && x <= 4096; }};
  command.option("--threads", threads, help, kThreads);
}

void ComputeOptions::add_to(const Command& command, bool model, const std::string& otherwise) {
  device = "auto";
  command.option("--device", device, "cpu, cuda, cuda:N, or auto: a GPU where there is one");
  if (!model) return;
  add_threads_option(command, threads, "CPU threads; 0 for all cores" + otherwise);
  command
      .option("--precision", precision,
              "f32; bf16, on a GPU weights and activations in bf16 with sums, loss and the weights that are "
              "updated in f32, on processors with AVX512-BF16 matrix products of rounded factors; tf32, "
              "products of rounded factors on a GPU; without it f32" +
                  otherwise)
      .one_of({"f32", "tf32", "bf16"});
  command.negative_flag(
      "--no-graphs", graphs,
      "on a GPU, queue repeated steps kernel by kernel, not as CUDA graphs; the same results");
}

Compute ComputeOptions::chosen(const std::string& unsaid) const {
  const Compute compute{device.empty() ? default_device() : Device::named(device),
                        precision.empty() ? unsaid : precision, graphs, threads};
  const bool rounds = compute.precision == "bf16";
  if (compute.precision == "f32" || compute.device.is_cuda() || (rounds && kernels::has_bf16_products()))
    return compute;
  throw Error("--precision " + compute.precision + " needs a GPU" +
              (rounds ? " or a processor with AVX512-BF16 and oneDNN" : "") +
              ", and this computes on the cpu" +
              (cuda::device_count() > 0 ? "; try --device cuda" : ": " + cuda::availability()) +
              (cuda::device_count() > 0 ? ", or" : "; try") + " --precision f32");
}

std::string peak_memory_text(Device device) {
  if (!device.is_cuda()) return {};
  const std::int64_t bytes = cuda::memory_statistics(device.index).peak_bytes;
  return "peak memory of " + device.text() + ": " + std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
}

}  // namespace tapeformer
