#include <tapeformer/autograd/cuda/nccl_functions.h>
#include <tapeformer/tests/autograd/cuda/runtime_case.h>

using namespace tapeformer;

TEST_CASE("the library tells its version and the meaning of a result, or why it cannot be loaded") {
  try {
    int version = 0;
    CHECK(cuda::nccl().get_version(&version) == ncclSuccess);
    CHECK(version > 2000);
    CHECK(std::string(cuda::nccl().error_string(ncclInvalidUsage)).find("invalid usage") == 0);
  } catch (const DeviceError& error) {
    CHECK(std::string(error.what()).find("[nccl] sums between GPUs need ") == 0);
  }
}
