#include <doctest/doctest.h>
#include <tapeformer/autograd/cuda/cuda.h>
#include <tapeformer/autograd/cuda/graph.h>
#include <tapeformer/autograd/cuda/readback.h>
#include <tapeformer/tests/reference/support.h>

#include <functional>

using namespace tapeformer;

TEST_CASE("a build or a machine without GPUs says so wherever one is requested") {
  if (cuda::device_count() > 0) return;
  CHECK(!cuda::availability().empty());
  std::uint64_t number = 0;
  void* const at = &number;
  const std::function<void()> calls[] = {[] { cuda::allocate(0, 1); },
                                         [] { cuda::allocate_for_upload(0, 1); },
                                         [] { cuda::device_name(0); },
                                         [&] { cuda::upload(0, at, at, 1); },
                                         [&] { cuda::overwrite(0, at, at, 1); },
                                         [&] { cuda::download(0, at, at, 1); },
                                         [&] { cuda::copy(0, at, at, 1); },
                                         [&] { cuda::copy_across(0, at, 0, at, 1); },
                                         [&] { cuda::fill(0, DType::f32, 1, 0, at); },
                                         [&] { cuda::convert(0, DType::f32, at, DType::f64, at, 1); },
                                         [] {
                                           cuda::watch_for_device_error(
                                               0, [](const cuda::DeviceErrorSlot&) { return ""; },
                                               [](cuda::DeviceErrorSlot*) {});
                                         },
                                         [&] { cuda::set_numbers(0, &number, &number, 1); },
                                         [] { const cuda::Capture capture(0, 0); },
                                         [&] { const cuda::Readback readback(0, at, 1); }};
  for (const auto& call : calls)
    CHECK(message_of<DeviceError>(call).find(cuda::availability() + "; try the cpu") != std::string::npos);
  CHECK_FALSE(cuda::is_capturing());
}
