#include <tapeformer/autograd/communication/nccl_engine.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

using namespace tapeformer;

// On machines with one GPU no other case calls NCCL.
TEST_CASE("a rank that is alone keeps its numbers") {
  if (!has_gpu()) return;
  ncclUniqueId id{};
  REQUIRE(cuda::nccl().get_unique_id(&id) == ncclSuccess);
  const Device device = Device::cuda(0);
  const auto two = [&] { return Tensor::full({4}, 2, DType::f32, device); };
  {
    NcclEngine engine(0, 1, device.index, id, 20);
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter,
                                        Collective::all_gather, Collective::broadcast}) {
      CAPTURE(name_of(collective));
      const Tensor x = two();
      const auto operation = engine.start({collective, x}, 1);
      engine.await(*operation);
      CHECK(add(x, x).to_vector<float>() == std::vector<float>(4, 4));
    }
  }
  CHECK(add(two(), two()).to_vector<float>() == std::vector<float>(4, 4));
}
