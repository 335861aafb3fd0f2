#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/gradcheck/gradcheck.h>

#include <cstdlib>
#include <iostream>

/// Files whose cases all need a GPU, real or emulated.
constexpr char kOfGpus[] =
    "*/kernels/test_cuda_*,*/cuda/test_arena.cpp,*/cuda/test_copies.cpp,*/cuda/test_device_errors.cpp,"
    "*/cuda/test_graphs.cpp,*/cuda/test_memory.cpp,*/cuda/test_runtime.cpp,*/test_cuda_graph_cache_masks.cpp,"
    "*/test_cuda_graph_cache_training.cpp,*/ops/test_matmul_bf16.cpp,*/nn/test_across_devices.cpp";

/// TAPEFORMER_TEST_DEVICE names the device that the cases run on; the CPU without it. 77: it is not there.
/// TAPEFORMER_GRADCHECK_ELEMENTS bounds the number of elements of an input that a gradient check compares.
int main(int count, char** arguments) {
  if (const char* device = std::getenv("TAPEFORMER_TEST_DEVICE"); device != nullptr) {
    try {
      tapeformer::set_default_device(tapeformer::Device::named(device));
    } catch (const tapeformer::DeviceError& error) {
      std::cout << "skipped: " << error.what() << "\n";
      return 77;
    }
  }
  if (const char* most = std::getenv("TAPEFORMER_GRADCHECK_ELEMENTS"); most != nullptr)
    tapeformer::gradcheck_most_elements = std::atoi(most);
  doctest::Context context(count, arguments);
  if (tapeformer::cuda::device_count() == 0) {
    std::cout << "skipped: " << kOfGpus << ": " << tapeformer::cuda::availability() << "\n";
    context.addFilter("source-file-exclude", kOfGpus);
  }
  const int result = context.run();
  tapeformer::leave_launch();
  return result;
}
