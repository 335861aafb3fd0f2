#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/kernels/matmul.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/nn/linear.h>
#include <tapeformer/tests/examples/arguments.h>

#include <omp.h>

using namespace tapeformer;

namespace {

Compute chosen(const std::string& device, const std::string& precision, const std::string& unsaid = "f32") {
  ComputeOptions options;
  options.device = device, options.precision = precision;
  return options.chosen(unsaid);
}

}  // namespace

TEST_CASE("a device is named or the default, and a precision given or as before") {
  CHECK(chosen("", "").device == default_device());
  CHECK(chosen("cpu", "").device == Device::cpu());
  CHECK(chosen("cpu", "").precision == "f32");
  CHECK(chosen("cpu", "f32", "bf16").precision == "f32");
  CHECK(chosen("auto", "").device == (cuda::device_count() > 0 ? Device::cuda() : Device::cpu()));
  CHECK(message_of<DeviceError>([] { chosen("gpu", ""); }) ==
        "[device] a device must be cpu, cuda, cuda:N or auto; got gpu; try cpu");
  CHECK(message_of<DeviceError>([] { chosen("cuda:99", ""); }) ==
        "[device] there is no cuda:99: " + cuda::availability() + "; try cpu");
}

TEST_CASE("reduced precision needs a GPU or a processor for bf16, and the message says what to do") {
  const std::string remedy = cuda::device_count() > 0 ? "; try --device cuda, or --precision f32"
                                                      : ": " + cuda::availability() + "; try --precision f32";
  const std::string processor = " or a processor with AVX512-BF16 and oneDNN";
  for (const auto& [precision, also] : {std::pair("bf16", processor), std::pair("tf32", std::string())}) {
    const std::string message = std::string("--precision ") + precision + " needs a GPU" + also +
                                ", and this computes on the cpu" + remedy;
    if (cuda::device_count() > 0) CHECK(chosen("cuda", "", precision).precision == precision);
    if (!also.empty() && kernels::has_bf16_products()) {
      CHECK(chosen("cpu", precision).precision == precision);
      continue;
    }
    CHECK(message_of<Error>([&] { chosen("cpu", precision); }) == message);
    CHECK(message_of<Error>([&] { chosen("cpu", "", precision); }) == message);
  }
}

TEST_CASE("the command line chooses a GPU where there is one, and the last option counts") {
  ComputeOptions options;
  const CommandLine line;
  options.add_to(line);
  CHECK(options.device == "auto");
  CHECK(read(line, {"--device", "cuda", "--precision", "bf16", "--device", "cpu"}));
  CHECK(options.device == "cpu");
  CHECK(options.precision == "bf16");
  const std::vector<std::string> unknown = {"--precision", "f16"};
  CHECK(has(message_of<Error>([&] { read(line, unknown); }), "--precision"));
  ComputeOptions without;
  const CommandLine other;
  without.add_to(other, false);
  CHECK(message_of<Error>([&] { read(other, unknown); }).find("unknown option") == 0);
}

TEST_CASE("a model computes on as many threads as the command line says") {
  ComputeOptions options;
  const CommandLine line;
  options.add_to(line);
  const int before = omp_get_max_threads();
  CHECK(read(line, {"--threads", "3", "--device", "cpu"}));
  Generator random(test_seed(1));
  Linear layer({2, 3, true, {}}, random);
  options.chosen().apply(layer);
  CHECK(omp_get_max_threads() == 3);
  chosen("cpu", "").apply(layer);
  CHECK(omp_get_max_threads() == 3);  // nothing said: as many as before
  omp_set_num_threads(before);
  for (const std::string none : {"-1", "4097"}) {
    const CommandLine other;
    ComputeOptions refused;
    refused.add_to(other);
    CHECK(message_of<Error>([&] {
            read(other, {"--threads", none});
          }) == "--threads must be from 0 to 4096; got " + none);
  }
}

TEST_CASE("a model is moved and gets its precision") {
  Generator random(test_seed(1));
  Linear layer({2, 3, true, {}}, random);
  Compute{Device::cpu(), "f32"}.apply(layer);
  CHECK(layer.weight().value().device() == Device::cpu());
  CHECK(layer.weight().used().dtype() == DType::f32);
  CHECK(Compute{Device::cpu(), "f32"}.text() == "computes on cpu in f32");
  CHECK(peak_memory_text(Device::cpu()).empty());
  Compute{Device::cpu(), "bf16"}.apply(layer);
  CHECK(matmul_precision() == MatmulPrecision::bf16);
  CHECK(layer.weight().used().dtype() == DType::f32);
  Compute{Device::cpu(), "f32"}.apply(layer);
  CHECK(matmul_precision() == MatmulPrecision::f32);
  if (cuda::device_count() == 0) return;
  Compute{Device::cuda(), "bf16"}.apply(layer);
  CHECK(layer.bias().value().device() == Device::cuda());
  CHECK(layer.bias().used().dtype() == DType::bf16);
  CHECK(matmul_precision() == MatmulPrecision::f32);
  Compute{Device::cuda(), "tf32"}.apply(layer);
  CHECK(matmul_precision() == MatmulPrecision::tf32);
  Compute{Device::cuda(), "f32"}.apply(layer);
  CHECK(matmul_precision() == MatmulPrecision::f32);
  CHECK(Compute{Device::cuda(), "f32"}.text().find("computes on cuda:0 (") == 0);
  CHECK(peak_memory_text(Device::cuda()).find("peak memory of cuda:0: ") == 0);
  CHECK(has(Compute{Device::cuda(), "f32"}.usage_text(), "; peak memory of cuda:0: "));
}
