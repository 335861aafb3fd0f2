// Single operations at the sizes of training: time, rate, and how near that is to the machine's limits. One
// line of JSON per case: median milliseconds of a call, GFLOP/s of its products, GB/s that it must read and
// write, and its share of the bound: the least time that products at the machine's peak, or a sum over as
// many bytes, would take, divided by the time. Operands stay where the call before left them, in the caches
// if they fit.
// Usage: bench ops [--list] [--filter TEXT] [--dtype f32|f64] [--seconds S] [CASE...]
//          a CASE is an operation and its sizes, such as "linear_forward 256 768 3072"; without one, those
//          of --list
//        bench ops --device cuda[:N] [--dtype f32|tf32|bf16|f64] [--tiny] [--list] [--filter TEXT] [CASE...]
//          the bound is a copy of a gibibyte and a product of 8192-wide matrices, both measured; --tiny: a
//          rehearsal at small sizes
//        bench ops [...] --ask: reads cases from its input, one per line, and answers each at once
#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/machine_rates.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/floor.h>
#include <tapeformer/tests/bench/operations.h>

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

using namespace tapeformer;

namespace {

/// Adds these passes of an operation at each of the sizes.
void with_passes(std::vector<std::string>& to, const std::string& operation,
                 const std::vector<std::string>& sizes,
                 const std::vector<std::string>& passes = {"_forward ", "_backward "}) {
  for (const std::string& size : sizes)
    for (const std::string& which : passes) to.push_back(operation + which + size);
}

/// At the sizes of the layers of babygpt (768 tokens of width 128), chargpt (2,048 of 384, batch 8),
/// gpt2-124m (256 of 768) and translate (2,048 of 256).
std::vector<std::string> usual_cases() {
  std::vector<std::string> cases;
  with_passes(cases, "linear",
              {"768 128 384", "768 128 512", "2048 384 1536", "256 768 2304", "256 768 3072", "256 3072 768",
               "256 768 50257", "2048 256 768", "2048 256 8000"},
              {"_forward ", "_dgrad ", "_wgrad "});
  with_passes(cases, "expert_linear", {"1536 128 256 8", "512 768 1536 8", "4096 256 512 16"});
  with_passes(cases, "attention", {"12 4 64 32", "8 6 256 64", "4 12 64 64", "128 8 16 32", "1 12 1024 64"});
  const std::vector<std::string> counts{"393216", "786432", "3145728", "12582912"};
  with_passes(cases, "block_attention", {"1 4 8192 64 256 3", "1 4 8192 64 512 3"});
  with_passes(
      cases, "latent_attention",
      {"1 16 8192 64 32 128 8192 4 32", "1 16 8192 64 32 128 512 4 32", "1 16 8192 64 32 128 256 4 32"});
  cases.insert(cases.end(), {"mha_layer 1 4 8192 64", "nsa_layer 1 4 8192 64 32 16 64 6 256"});
  with_passes(cases, "gelu", counts);
  with_passes(cases, "gelu_tanh", counts);
  with_passes(cases, "softmax", {"3072 64", "12288 256", "256 8000"});
  with_passes(cases, "layer_norm", {"768 128", "2048 384", "16384 384", "256 768", "2048 256"});
  for (const std::string count : {"98304", "786432", "6291456"}) {
    cases.insert(cases.end(), {"residual_add " + count, "dropout_mask " + count});
    with_passes(cases, "dropout", {count});
  }
  with_passes(cases, "cross_entropy", {"768 65", "16384 65", "2048 8000", "256 50257"});
  with_passes(cases, "embedding", {"768 65 128", "2048 65 384", "2048 8000 256", "256 50257 768"});
  for (const char* operation : {"gradient_norm", "adamw_step"})
    with_passes(cases, operation, {"4 128 65 64", "6 384 65 256", "12 768 50257 1024"}, {" "});
  return cases;
}

/// At the sizes of gpt2-124m with 64 rows of 1024 tokens, which no cache holds; attention at a constant
/// number of tokens, and as published: batch 4, 48 heads of 128.
std::vector<std::string> usual_gpu_cases() {
  std::vector<std::string> cases;
  for (const char* operation : {"layer_norm", "add_layer_norm"}) with_passes(cases, operation, {"65536 768"});
  with_passes(cases, "softmax", {"65536 1024"});
  cases.push_back("cross_entropy_both 8192 50304");
  for (const char* operation : {"gelu", "gelu_tanh", "dropout"}) with_passes(cases, operation, {"50331648"});
  cases.insert(cases.end(), {"residual_add 50331648", "narrow 50331648", "widen 50331648"});
  with_passes(cases, "rotary", {"64 1024 12 64"});
  with_passes(cases, "embedding", {"65536 50304 768"});
  with_passes(cases, "expert_linear", {"65536 768 1536 8"});
  cases.insert(cases.end(),
               {"column_sums 65536 3072", "adamw_step 12 768 50304 1024", "gradient_norm 12 768 50304 1024"});
  with_passes(cases, "linear", {"65536 768 2304", "65536 768 3072", "65536 3072 768", "8192 768 50304"},
              {"_forward ", "_dgrad ", "_wgrad "});
  for (const Index width : {64, 128}) {
    for (Index length = 1024; length <= 16384; length *= 2) {
      const std::string sizes = std::to_string(16384 / length) + " " + std::to_string(2048 / width) + " " +
                                std::to_string(length) + " " + std::to_string(width);
      for (const char* operation : {"attention", "full_attention"}) with_passes(cases, operation, {sizes});
    }
  }
  with_passes(cases, "attention", {"4 48 1024 128", "4 48 2048 128", "4 48 4096 128", "4 48 8192 128"});
  for (const std::string changed : {"sink", "softcap", "relative", "sigmoid", "dropout"})
    with_passes(cases, changed + "_attention", {"16 32 1024 64"});
  with_passes(cases, "dropout_attention", {"64 6 256 64"});
  return cases;
}

/// Every operation of those once.
std::vector<std::string> tiny_gpu_cases() {
  std::map<std::string, std::string> cases;
  for (const std::string& name : usual_gpu_cases()) {
    std::istringstream words(name);
    std::string operation, sizes;
    words >> operation;
    for (std::string size; words >> size;) sizes += " 8";
    if (operation.find("attention") != std::string::npos) sizes = " 1 2 40 64";
    cases[operation] = operation + sizes;
  }
  std::vector<std::string> all;
  for (const auto& [operation, name] : cases) all.push_back(name);
  return all;
}

Work make(const std::string& name, DType type) {
  std::istringstream words(name);
  std::string operation;
  words >> operation;
  const auto found = operations().find(operation);
  if (found == operations().end()) throw Error("there is no operation " + operation + "; try --list");
  Sizes sizes;
  for (Index size = 0; words >> size;) sizes.push_back(size);
  const std::string expected = found->second.sizes;
  const bool all_positive = std::all_of(sizes.begin(), sizes.end(), [](Index n) { return n > 0; });
  if (!words.eof() || !all_positive ||
      std::count(expected.begin(), expected.end(), ' ') + 1 != static_cast<std::ptrdiff_t>(sizes.size()))
    throw Error(operation + " takes the sizes " + expected + "; got: " + name);
  return found->second.make(sizes, type);
}

Device device;
bool is_tiny = false;

/// The type of the tensors; on the CPU only the factors of products are bf16.
DType type_of(const std::string& name) {
  if (name == "bf16" && device.is_cuda()) return DType::bf16;
  return name == "f64" ? DType::f64 : DType::f32;
}

/// The time of a call in seconds; short calls are timed several at a time.
double time_of(const Work& work, double seconds) {
  const auto time_one = [&](int calls) {
    const double begun = now();
    for (int call = 0; call < calls; ++call) work.run();
    if (device.is_cuda()) cuda::synchronize(device.index);
    return (now() - begun) / calls;
  };
  time_one(2);                                           // the pools grow
  const double enough = device.is_cuda() ? 1e-2 : 1e-4;  // a GPU is waited for at the end of them
  const int calls = static_cast<int>(std::clamp(enough / std::max(time_one(1), 1e-7), 1.0, 100.0));
  std::vector<double> times;
  for (const double end = now() + seconds; times.size() < 5 || (now() < end && times.size() < 2000);)
    times.push_back(time_one(calls));
  return median(times);
}

/// The machine's FLOP/s for products of matrices.
double matrix_rate(DType type) {
  if (device.is_cuda()) {
    static const double rate = gpu_matrix_rate(device, type, is_tiny ? 64 : 8192);
    return rate;
  }
  static const double peak_f32 = peak_rate<float>(), peak_f64 = peak_rate<double>();
  return type == DType::f32 ? peak_f32 : peak_f64;
}

double copy_rate(double bytes, bool in_place) {
  if (!device.is_cuda()) return bandwidth(bytes, in_place);
  static const double rate = gpu_copy_bandwidth(device, is_tiny ? 1 << 20 : 1 << 30);
  return rate;
}

void show(const std::string& name, const std::string& type_name, double seconds) {
  const DType type = type_of(type_name);
  const Work work = make(name, type);
  const double took = time_of(work, seconds);
  const double bytes = work.numbers * static_cast<double>(bytes_of(type)) + work.other_bytes;
  const double computing = work.flops > 0 ? work.flops / matrix_rate(type) : 0,
               copied = copy_rate(bytes, work.in_place);
  const double moving = bytes / copied, least = std::max(computing, moving);
  std::printf(
      "{\"table\": \"Single operations\", \"operation\": \"%s\", \"type\": \"%s\", \"threads\": %d, "
      "\"ms\": %.5g, \"GFLOP/s\": %.4g, \"GB/s\": %.4g, \"bound by\": \"%s\", \"share of the bound\": \"%.0f "
      "%%\", "
      "\"_least_ms\": %.5g, \"_matrix_gflop_per_s\": %.5g, \"_copy_gb_per_s\": %.5g, \"_gpu\": \"%s\"}\n",
      name.c_str(), type_name.c_str(), omp_get_max_threads(), 1e3 * took, 1e-9 * work.flops / took,
      1e-9 * bytes / took, computing > moving ? "products" : "bytes", 100 * least / took, 1e3 * least,
      work.flops > 0 ? 1e-9 * matrix_rate(type) : 0, 1e-9 * copied,
      device.is_cuda() ? cuda::device_name(device.index).c_str() : "");
  std::fflush(stdout);
}

}  // namespace

int tapeformer::bench_ops(int argc, char** argv) {
  std::vector<std::string> cases;
  std::string filter;
  std::string type_name = "f32", device_name = "cpu";
  double seconds = 0.3;
  bool lists = false, asks = false;
  const CommandLine line("Times single operations.");
  line.option("cases", cases, "an operation and its sizes; the usual ones when there is none");
  line.option("--filter", filter, "only cases that contain this");
  line.option("--dtype", type_name, "tf32 on a GPU alone; on the CPU bf16 are the factors of products")
      .one_of({"bf16", "f32", "f64", "tf32"});
  line.option("--device", device_name, "cpu, cuda or cuda:N");
  line.flag("--tiny", is_tiny, "on a GPU, each operation once at a small size");
  line.option("--seconds", seconds, "so long a case, or five times", kNotNegative);
  line.flag("--list", lists, "the cases' names, and nothing else");
  line.flag("--ask", asks, "read cases from the input, and answer each at once");
  if (!line.read(argc, argv)) return 0;
  device = Device::named(device_name);
  if (!device.is_cuda() && (is_tiny || type_name == "tf32"))
    throw Error("tf32 and --tiny need --device cuda");
  set_default_device(device);
  if (type_name == "tf32") set_matmul_precision(MatmulPrecision::tf32);
  if (type_name == "bf16" && !device.is_cuda()) set_matmul_precision(MatmulPrecision::bf16);
  if (asks) {
    for (std::string name; std::getline(std::cin, name);) show(name, type_name, seconds);
    return 0;
  }
  if (cases.empty())
    cases = is_tiny ? tiny_gpu_cases() : device.is_cuda() ? usual_gpu_cases() : usual_cases();
  const auto passes = [&](const std::string& name) { return name.find(filter) != std::string::npos; };
  if (std::none_of(cases.begin(), cases.end(), passes)) throw Error("no case contains " + filter);
  for (const std::string& name : cases) {
    if (!passes(name)) continue;
    if (lists) {
      std::printf("%s\n", name.c_str());
    } else {
      show(name, type_name, seconds);
    }
  }
  return 0;
}
