#include <tapeformer/autograd/kernels/cache.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>

#include <algorithm>

using namespace tapeformer;

namespace {

constexpr Index kRows = 3, kRoom = 70;

/// A cache of zeros after one token of each row was written at `positions`, on the CPU or the GPU.
template <class On>
std::vector<Tensor> held_after(On on, Device device, Index key_width, Index value_width,
                               const Tensor& positions) {
  Generator random(test_seed(4));
  const Tensor keys = host_normal({kRows, key_width}, random, DType::f32).to(device);
  const Tensor values = host_normal({kRows, value_width}, random, DType::f32).to(device);
  const Tensor held_keys = Tensor::zeros({kRows, kRoom, key_width}, DType::f32, device);
  const Tensor held_values = Tensor::zeros({kRows, kRoom, value_width}, DType::f32, device);
  const Tensor at = positions.to(device);
  const kernels::TokenPlaces places{kRows, kRoom, key_width, value_width, at.address<std::int32_t>()};
  const auto address = [](const Tensor& x) { return x.elements() > 0 ? x.address<float>() : nullptr; };
  kernels::put_tokens<float>(on, places, address(keys), address(values), address(held_keys),
                             address(held_values));
  return {keys, values, held_keys, held_values};
}

Tensor positions_of(const std::vector<std::int32_t>& values) {
  const Tensor x = Tensor::empty({static_cast<Index>(values.size()), 1}, DType::i32, Device::cpu());
  std::copy(values.begin(), values.end(), x.data<std::int32_t>());
  return x;
}

}  // namespace

TEST_SUITE("autograd/kernels/cuda_cache") {
  TEST_CASE("a token of each row goes to its place, and nothing else changes") {
    for (const Index value_width : {0, 5, 96}) {
      const Index key_width = 7 + value_width;
      const std::vector<std::int32_t> at{69, 0, 31};
      const auto here = held_after(kernels::Cpu{}, Device::cpu(), key_width, value_width, positions_of(at));
      const auto there =
          held_after(kernels::Cuda{0}, Device::cuda(), key_width, value_width, positions_of(at));
      for (int which : {2, 3}) CHECK(same_values(here[which], there[which]));
      for (int which : {0, 1}) {
        const Tensor fresh = readable(there[which]), held = readable(there[which + 2]);
        const Index width = fresh.size(1);
        for (Index i = 0; i < held.elements(); ++i) {
          const Index row = i / width / kRoom, position = i / width % kRoom;
          const bool is_new = position == at[static_cast<std::size_t>(row)];
          CHECK(held.at(i) == (is_new ? fresh.at(row * width + i % width) : 0));
        }
      }
    }
  }

  TEST_CASE("lengths reach to the token of a position") {
    std::vector<std::int32_t> at(600);
    for (std::size_t i = 0; i < at.size(); ++i) at[i] = static_cast<std::int32_t>(i * 37 % 601);
    const Tensor positions = positions_of(at).to(Device::cuda());
    const Tensor lengths = Tensor::empty({600}, DType::i32, Device::cuda());
    kernels::lengths_up_to(kernels::Cuda{0}, 600, positions.address<std::int32_t>(),
                           lengths.address<std::int32_t>());
    const Tensor got = lengths.to(Device::cpu());
    for (std::size_t i = 0; i < at.size(); ++i) CHECK(got.data<std::int32_t>()[i] == at[i] + 1);
  }
}
