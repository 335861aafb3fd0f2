// Single operations at the sizes that training has: time, rate, and how near that is to what the machine can
// do. One line of JSON a case: median milliseconds of a call, GFLOP/s of its products, GB/s of what it must
// read and write, and its share of the bound: the least time that products at the machine's peak, or a sum
// over as many bytes, would take, divided by the time. Operands stay where the call before left them, in the
// caches if they fit.
// Usage: bench_ops [--list] [--filter TEXT] [--dtype f32|f64] [--seconds S] [--processor-time] [CASE...]
//          a CASE is an operation and its sizes, such as "linear_forward 256 768 3072"; without one, those
//          of --list; --processor-time: with one thread, the time on a machine that others use too
//        bench_ops --ask: reads cases from its input, a line each, and answers each at once
#include <tapeformer/autograd/error.h>
#include <tapeformer/tests/bench/bandwidth.h>
#include <tapeformer/tests/bench/clock.h>
#include <tapeformer/tests/bench/operations.h>
#include <tapeformer/tests/bench/peak.h>

#include <CLI/CLI.hpp>

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

using namespace tapeformer;

namespace {

/// At the sizes of the layers of babygpt (768 tokens of width 128), chargpt (2,048 of 384, batch 8),
/// gpt2-124m (256 of 768) and translate (2,048 of 256).
std::vector<std::string> usual_cases() {
  const auto with_passes = [](std::vector<std::string>& to, const std::string& operation,
                              const std::vector<const char*>& sizes) {
    for (const char* size : sizes)
      for (const char* which : {"_forward ", "_backward "}) to.push_back(operation + which + size);
  };
  std::vector<std::string> cases;
  for (const char* sizes : {"768 128 384", "768 128 128", "768 128 512", "768 512 128", "768 128 65",
                            "2048 384 1152", "2048 384 384", "2048 384 1536", "2048 1536 384", "256 768 2304",
                            "256 768 768", "256 768 3072", "256 3072 768", "256 768 50257", "2048 256 768",
                            "2048 256 256", "2048 256 512", "2048 512 256", "2048 256 8000"})
    for (const char* which : {"forward ", "dgrad ", "wgrad "})
      cases.push_back(std::string("linear_") + which + sizes);
  with_passes(cases, "attention", {"12 4 64 32", "8 6 256 64", "4 12 64 64", "128 8 16 32", "1 12 1024 64"});
  const std::vector<const char*> counts{"393216", "786432", "3145728", "12582912"};
  with_passes(cases, "gelu", counts);
  with_passes(cases, "gelu_tanh", counts);
  with_passes(cases, "softmax", {"3072 64", "12288 256", "256 8000"});
  with_passes(cases, "layer_norm", {"768 128", "2048 384", "16384 384", "256 768", "2048 256"});
  for (const char* count : {"98304", "786432", "6291456"}) {
    cases.push_back(std::string("residual_add ") + count);
    cases.push_back(std::string("dropout_mask ") + count);
    with_passes(cases, "dropout", {count});
  }
  with_passes(cases, "cross_entropy", {"768 65", "16384 65", "2048 8000", "256 50257"});
  with_passes(cases, "embedding", {"768 65 128", "2048 65 384", "2048 8000 256", "256 50257 768"});
  for (const char* operation : {"gradient_norm ", "adamw_step "})
    for (const char* model : {"4 128 65 64", "6 384 65 256", "12 768 50257 1024"})
      cases.push_back(std::string(operation) + model);
  return cases;
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

bool counts_processor_time = false;

double clock_now() { return counts_processor_time ? processor_seconds() : now(); }

/// Of a call, in seconds; short ones are timed several at a time.
double time_of(const Work& work, double seconds) {
  const auto time_one = [&](int calls) {
    const double begun = clock_now();
    for (int call = 0; call < calls; ++call) work.run();
    return (clock_now() - begun) / calls;
  };
  time_one(2);  // the pools grow
  const int calls = static_cast<int>(std::clamp(1e-4 / std::max(time_one(1), 1e-7), 1.0, 100.0));
  std::vector<double> times;
  for (const double end = now() + seconds; times.size() < 5 || (now() < end && times.size() < 2000);)
    times.push_back(time_one(calls));
  return median(times);
}

void show(const std::string& name, DType type, double seconds) {
  const Work work = make(name, type);
  const double took = time_of(work, seconds);
  const double bytes = work.numbers * static_cast<double>(bytes_of(type));
  static const double peak_f32 = peak_rate<float>(), peak_f64 = peak_rate<double>();
  const double computing = work.flops / (type == DType::f32 ? peak_f32 : peak_f64);
  const double moving = bytes / bandwidth(bytes, work.in_place, clock_now),
               least = std::max(computing, moving);
  std::printf(
      "{\"table\": \"Single operations\", \"operation\": \"%s\", \"type\": \"%s\", \"threads\": %d, "
      "\"ms\": %.5g, \"GFLOP/s\": %.4g, \"GB/s\": %.4g, \"bound by\": \"%s\", \"share of the bound\": \"%.0f "
      "%%\", "
      "\"_least_ms\": %.5g}\n",
      name.c_str(), type == DType::f32 ? "f32" : "f64", omp_get_max_threads(), 1e3 * took,
      1e-9 * work.flops / took, 1e-9 * bytes / took, computing > moving ? "products" : "bytes",
      100 * least / took, 1e3 * least);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> cases;
  std::string filter;
  std::string type_name = "f32";
  double seconds = 0.3;
  bool lists = false, asks = false;
  CLI::App app("Times single operations.");
  app.add_option("cases", cases, "an operation and its sizes; the usual ones when there is none");
  app.add_option("--filter", filter, "only cases that contain this");
  app.add_option("--dtype", type_name)->check(CLI::IsMember({"f32", "f64"}));
  app.add_option("--seconds", seconds, "so long a case, or five times");
  app.add_flag("--processor-time", counts_processor_time);
  app.add_flag("--list", lists, "the cases' names, and nothing else");
  app.add_flag("--ask", asks, "read cases from the input, and answer each at once");
  CLI11_PARSE(app, argc, argv);
  const DType type = type_name == "f32" ? DType::f32 : DType::f64;
  try {
    if (asks) {
      for (std::string name; std::getline(std::cin, name);) show(name, type, seconds);
      return 0;
    }
    if (cases.empty()) cases = usual_cases();
    const auto passes = [&](const std::string& name) { return name.find(filter) != std::string::npos; };
    if (std::none_of(cases.begin(), cases.end(), passes)) throw Error("no case contains " + filter);
    for (const std::string& name : cases) {
      if (!passes(name)) continue;
      if (lists) {
        std::printf("%s\n", name.c_str());
      } else {
        show(name, type, seconds);
      }
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "bench_ops: %s\n", error.what());
    return 2;
  }
  return 0;
}
