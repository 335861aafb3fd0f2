#include <tapeformer/autograd/kernels/shape.h>
#include <tapeformer/autograd/ops/elementwise.h>
#include <tapeformer/autograd/ops/embedding.h>
#include <tapeformer/autograd/ops/loss.h>
#include <tapeformer/autograd/ops/rotary.h>
#include <tapeformer/autograd/ops/shape.h>
#include <tapeformer/tests/autograd/kernels/cuda_case.h>
#include <tapeformer/tests/reference/sanitized.h>

using namespace tapeformer;

namespace {

/// The error thrown before everything that `run` queues is done.
template <class F>
std::string device_error_of(F&& run) {
  return message_of<ShapeError>([&] {
    run();
    cuda::synchronize(0);
  });
}

}  // namespace

TEST_CASE("gradients of ids of one, two and three bytes, rare, frequent and alone, of many tiles") {
  Generator random(test_seed(7));
  for (const Index vocabulary : {1, 255, 256, 65535, 65536, 70000}) {
    for (const Index count : {2048, 2049, 10000, 140000}) {  // of more tiles than each block adds up, once
      if (count > fewer_if_sanitized(vocabulary == 65536 ? 140000 : 10000)) continue;
      CAPTURE(vocabulary);
      CAPTURE(count);
      const Tensor ids = random_ids({count}, vocabulary, random);
      std::int32_t* id = ids.data<std::int32_t>();
      for (Index i = 0; i < count; ++i)
        if (i % 3 == 0) id[i] = static_cast<std::int32_t>(vocabulary / 2);  // a chunk and more of its own
      id[count - 1] = static_cast<std::int32_t>(vocabulary - 1);
      const Tensor dy = whole({count, 2}, random, 1 << 20),
                   table = Tensor::zeros({vocabulary, 2}, DType::f64, Device::cpu());
      const Function look_up = [&](const auto& in) { return embedding(in[0], ids.to(in[0].device())); };
      CHECK(same_values(with_gradients(look_up, {on_gpu(table)}, on_gpu(dy))[1],
                        with_gradients(look_up, {table}, dy)[1]));
    }
  }
}

TEST_CASE("gradients of a table with a shadow in bf16 are f32, and add up") {
  Generator random(test_seed(2));
  const Tensor ids = random_ids({500}, 9, random),
               dy = on_gpu(host_normal({500, 40}, random).to(DType::bf16));
  const Tensor plain = host_normal({9, 40}, random);
  const Function look_up = [&](const auto& in) { return embedding(in[0], ids.to(in[0].device())); };
  const Tensor exact = with_gradients(look_up, {plain}, readable(dy))[1];
  check_shadow([&](const Tensor& table) { return look_up({table}); }, plain, dy, exact, 1e-6);
}

TEST_CASE("the first id out of range is reported in the CPU's words") {
  Generator random(test_seed(3));
  for (const Index count : {1, 40, 2000, 5000}) {
    for (const Index at : {Index{0}, count / 2, count - 1}) {
      for (const std::int32_t wrong : {-1, 7, 1 << 30}) {
        const Tensor ids = random_ids({1, count}, 7, random);
        for (Index i = at; i < count; i += 3) ids.data<std::int32_t>()[i] = wrong;
        const Tensor table = host_normal({7, 3}, random), x = host_normal({1, count, 7}, random);
        const auto look_up = [&](Device device) {
          return device_error_of([&] { embedding(table.to(device), ids.to(device)); });
        };
        const auto lose = [&](Device device) {
          return device_error_of([&] { cross_entropy(x.to(device), ids.to(device), {5, 0}); });
        };
        const auto lose_linear = [&](Device device) {
          return device_error_of([&] {
            const Tensor there = x.to(device), weight = table.to(device);
            linear_cross_entropy(there, Tensor::zeros({7, 7}, DType::f64, device), {}, ids.to(device));
          });
        };
        CHECK(look_up(Device::cuda()) == look_up(Device::cpu()));
        CHECK(look_up(Device::cpu()).find("must be in [0, 7)") != std::string::npos);
        CHECK(lose(Device::cuda()) == lose(Device::cpu()));
        CHECK(lose_linear(Device::cuda()) == lose_linear(Device::cpu()));
      }
    }
  }
  CHECK_NOTHROW(embedding(Tensor::zeros({1, 1}, DType::f32, Device::cuda()),
                          Tensor::zeros({3}, DType::i32, Device::cuda())));
}

TEST_CASE("indices out of range are reported in the CPU's words, give zeros, and get no gradient") {
  const Tensor x = Tensor::full({3}, 7, DType::f32, Device::cuda());
  const Tensor index = on_gpu(Tensor::from(std::vector<std::int32_t>{2, -2000000000, 2000000000, 0}, {4}));
  CHECK(device_error_of([&] { gather(x, 0, index); }) ==
        "[gather] indices must be in [0, 3); got -2000000000 at element 1 of index=i32[4]");
  CHECK(device_error_of([&] {
          scatter_add(x, 0, on_gpu(Tensor::from(std::vector<std::int32_t>{0, 2, 5})), 5);
        }) == "[scatter_add] indices must be in [0, 5); got 5 at element 2 of index=i32[3]");
  const std::int32_t* const picks = index.address<std::int32_t>();
  const Tensor y = Tensor::full({4}, 1, DType::f32, Device::cuda());
  kernels::gather(kernels::Cuda{0}, 1, 3, 4, 1, picks, x.address<float>(), y.address<float>());
  CHECK(y.to_vector<float>() == std::vector<float>{7, 0, 0, 7});
  kernels::scatter_add(kernels::Cuda{0}, 1, 3, 4, 1, picks, y.address<float>(), x.address<float>());
  CHECK(x.to_vector<float>() == std::vector<float>{7, 0, 7});
}

TEST_CASE(
    "turned pairs in bf16, in both layouts, of parts of a head and of more pairs than travel with a "
    "launch") {
  Generator random(test_seed(4));
  for (const RotaryLayout layout : {RotaryLayout::interleaved, RotaryLayout::half_split}) {
    for (const Index head_width : {2, 6, 34, 300}) {
      for (const Index width : {Index{0}, Index{2}}) {
        CAPTURE(head_width);
        CAPTURE(width);
        RotaryConfig config;
        config.layout = layout, config.width = width;
        const Tensor x = host_normal({2, 5, 3 * head_width + 7}, random),
                     dy = host_normal({2, 5, 3 * head_width + 7}, random);
        for (const Shape& shape : {Shape{5}, Shape{2, 5}}) {
          const Tensor positions = random_ids(shape, 1000, random);
          const Function turn = [&](const auto& in) {
            return packed_rotary(
                in[0], 2, head_width,
                rotary_angles(config, head_width, positions.to(in[0].device()), in[0].dtype()));
          };
          check_bf16(turn, {}, {x}, dy, 1);
        }
      }
    }
  }
}
