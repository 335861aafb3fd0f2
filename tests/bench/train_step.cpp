// Full training steps (random batch, forward, loss, backward, clipping, AdamW) of the workloads that
// torch_step.py times in PyTorch, through the library's public interface. One line of JSON.
// Usage: bench train_step [WORKLOAD[:BATCH]] [--device cpu|cuda[:N]] [--precision f64|f32|tf32|bf16]
//                         [--steps N] [--seconds S] [--threads N] [--length T] [--fused-head]
//                         [--recompute-layers] [--no-graphs] [--profile] [--list] [--shard-optimizer]
// Under mpirun the ranks share the rows of a batch; the line then describes the slowest, or largest, rank.
#include <tapeformer/autograd/communication/mpi.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/storage.h>
#include <tapeformer/data/share.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/compute.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/tests/bench/bench.h>
#include <tapeformer/tests/bench/floor.h>
#include <tapeformer/tests/bench/training.h>

#include <nlohmann/json.hpp>

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace tapeformer;

namespace {

constexpr int kWarmUp = 3;
constexpr double kGpuWarmUp = 0.5;  // seconds that a GPU takes at least, until its clocks are up

struct Options {
  std::string workload = "babygpt";
  int steps = 0, threads = 0;
  double seconds = 10;
  ComputeOptions compute{"cpu", "f32"};
  Index length = 0;
  DataParallelConfig parallel;
  bool fused_head = false, recompute_layers = false, profile = false, list = false;
};

/// `floor`: the least seconds, or 0 where they are not known.
void print_line(const char* name, double seconds, double whole, double rate = 0, const char* unit = "",
                double floor = 0) {
  std::printf("%-30s %10.3f %6.1f %%", name, 1e3 * seconds, 100 * seconds / whole);
  if (rate > 0) std::printf(" %8.1f %s", 1e-9 * rate, unit);
  if (floor > 0)
    std::printf("%*s %10.3f %6.1f %%", rate > 0 ? 0 : 17, "", 1e3 * floor, 100 * floor / seconds);
  std::printf("\n");
}

/// The mean time of `steps` more steps, by phase; of several ranks that of rank 0.
void print_profile(Training& training, const Communicator& ranks, int steps, double flops, DType type) {
  const CommunicationTime before = ranks.time();
  PhaseSeconds seconds{};
  for (int i = 0; i < steps; ++i) {
    const PhaseSeconds one = training.step(true);
    for (std::size_t phase = 0; phase < one.size(); ++phase) seconds[phase] += one[phase] / steps;
  }
  if (ranks.rank() > 0) return;
  const SpeedOfLight light = speed_of_light(training.device(), type);
  const auto work =
      step_work(flops, static_cast<double>(training.parameters()), static_cast<double>(bytes_of(type)));
  const double whole = sum(seconds);
  double least = 0;
  std::printf("%-30s %10s %8s %16s %10s %8s   (averages of %d steps)\n", "phase", "ms", "share", "rate",
              "floor, ms", "of light", steps);
  for (std::size_t i = 0; i < kPhases.size(); ++i) {
    const double floor = light.floor(work[i]);
    const bool computes = work[i].flops > 0;
    print_line(kPhases[i], seconds[i], whole, (computes ? work[i].flops : work[i].bytes) / seconds[i],
               computes ? "GFLOP/s" : "GB/s   ", floor);
    least += floor;
  }
  print_line("all", whole, whole, flops / whole, "GFLOP/s", least);
  if (ranks.size() > 1) {
    const double busy = (ranks.time().busy - before.busy) / steps,
                 waited = (ranks.time().waited - before.waited) / steps;
    print_line("communication, hidden", std::max(0.0, busy - waited), whole);
    print_line("communication, waited for", waited, whole);
  }
  std::printf("floors: %.1f GFLOP/s and %.1f GB/s, measured now; activations are not counted\n",
              1e-9 * light.flops, 1e-9 * light.bytes);
  std::fflush(stdout);
}

double rounded(double value, int decimals) {
  const double scale = std::pow(10.0, decimals);
  return std::round(value * scale) / scale;
}

/// A few warm-up steps, then as many as --steps says, or --seconds take, but at least 5 and at most 200.
std::vector<PhaseSeconds> measured_steps(Training& training, int steps, double seconds) {
  double warmed_up = 0;
  for (int i = 0; i < kWarmUp || (training.device().is_cuda() && warmed_up < kGpuWarmUp); ++i) {
    const double one = sum(training.step());
    if (i > 0) warmed_up += one;
  }
  if (steps == 0) steps = std::max(5, std::min(200, static_cast<int>(seconds / sum(training.step()))));
  std::vector<PhaseSeconds> result;
  for (int i = 0; i < steps; ++i) result.push_back(training.step());
  return result;
}

template <class F>
double median_ms(const std::vector<PhaseSeconds>& steps, const F& part) {
  std::vector<double> values;
  for (const PhaseSeconds& step : steps) values.push_back(part(step));
  return 1e3 * median(values);
}

double mean_ms(const std::vector<PhaseSeconds>& steps) {
  double seconds = 0;
  for (const PhaseSeconds& step : steps) seconds += sum(step);
  return 1e3 * seconds / static_cast<double>(steps.size());
}

/// A rate relative to the CPU's peak, and to that of large matrix products.
void add_shares(nlohmann::ordered_json& line, double rate, bool in_double) {
  const double peak = in_double ? peak_rate<double>() : peak_rate<float>(), gemm = gemm_rate();
  line["peak_gflop_per_s"] = rounded(1e-9 * peak, 1), line["gemm_gflop_per_s"] = rounded(1e-9 * gemm, 1);
  line["share_of_peak"] = rounded(rate / peak, 3), line["share_of_gemm"] = rounded(rate / gemm, 3);
}

/// The largest of the ranks' results.
double largest(Communicator& ranks, double own) {
  std::vector<double> all(static_cast<std::size_t>(ranks.size()));
  all[static_cast<std::size_t>(ranks.rank())] = own;
  const std::vector<double> found = ranks.sum(all);
  return *std::max_element(found.begin(), found.end());
}

void measure(const Workload& whole, const Options& options) {
  const std::shared_ptr<Communicator> ranks = join_launch();
  Workload w = whole;
  const Share rows = share_of(whole.batch, ranks->rank(), ranks->size());
  w.batch = rows.end - rows.begin;
  const double baseline = resident_mib("VmRSS:");
  const bool in_double = options.compute.precision == "f64";
  const Compute compute =
      ComputeOptions{options.compute.device, in_double ? "f32" : options.compute.precision,
                     options.compute.graphs}
          .chosen();
  Training training(w, {in_double ? DType::f64 : DType::f32, compute, options.fused_head,
                        options.recompute_layers, ranks, options.parallel});
  const std::vector<PhaseSeconds> steps = measured_steps(training, options.steps, options.seconds);
  const double resident = resident_mib("VmHWM:"), pool = static_cast<double>(pool_statistics().peak_bytes);
  const double ms = largest(*ranks, median_ms(steps, sum)), flops = whole.flops(training.parameters()),
               rate = 1e3 * flops / ms;
  const bool on_gpu = compute.device.is_cuda();

  nlohmann::ordered_json line{
      {"workload", w.name}, {"program", "tapeformer"}, {"device", compute.device.text()}};
  if (on_gpu) line["gpu"] = cuda::device_name(compute.device.index);
  line["dtype"] = options.compute.precision, line["threads"] = omp_get_max_threads(), line["compile"] = false;
  line["params"] = training.parameters(), line["ms"] = rounded(ms, 2);
  line["mean_ms"] = rounded(mean_ms(steps), 2);  // on a busy machine a few steps take long
  line["tokens_per_s"] = std::llround(1e3 * static_cast<double>(whole.tokens()) / ms);
  if (ranks->size() > 1) {
    const CommunicationTime time = ranks->time();
    const auto taken = static_cast<double>(steps.size() + kWarmUp);
    line["ranks"] = ranks->size(), line["shard_optimizer"] = options.parallel.shard_optimizer;
    line["communication_ms"] = rounded(1e3 * time.busy / taken, 2);
    line["waited_ms"] = rounded(1e3 * time.waited / taken, 2);
  }
  line["peak_mib"] = std::llround(largest(*ranks, resident)),
  line["pool_mib"] = std::llround(pool / (1 << 20));
  if (on_gpu) {
    const auto peak = static_cast<double>(cuda::memory_statistics(compute.device.index).peak_bytes);
    line["peak_device_mib"] = std::llround(peak / (1 << 20));
    line["graphs"] = training.replay().counts().captured, line["graph_nodes"] = training.replay().nodes();
    if (!training.replay().refusal().empty()) line["no_graph"] = training.replay().refusal();
  }
  line["baseline_mib"] = std::llround(baseline), line["steps"] = steps.size(), line["compiler"] = __VERSION__;
  line["fused_head"] = options.fused_head, line["recompute_layers"] = options.recompute_layers;
  const bool in_bf16 = on_gpu && compute.precision == "bf16";
  const DType computed_in = in_double ? DType::f64 : in_bf16 ? DType::bf16 : DType::f32;
  const auto work = step_work(flops, static_cast<double>(training.parameters()),
                              static_cast<double>(bytes_of(computed_in)));
  for (std::size_t i = 0; i < kPhases.size(); ++i) {
    line["work"][kPhases[i]] = {{"gflop", rounded(1e-9 * work[i].flops, 3)},
                                {"mb", rounded(1e-6 * work[i].bytes, 3)}};
  }
  line["gflop"] = rounded(1e-9 * flops, 3), line["gflop_per_s"] = rounded(1e-9 * rate, 1);
  if (!on_gpu) {
    add_shares(line, rate, in_double);
    line["copy_gb_per_s"] = rounded(1e-9 * bandwidth(768e6, true), 1);
    for (std::size_t i = 0; i < kPhases.size(); ++i)
      line["phases_ms"][kPhases[i]] =
          rounded(median_ms(steps, [i](const PhaseSeconds& s) { return s[i]; }), 3);
  }
  if (ranks->rank() == 0) std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
  if (options.profile)
    print_profile(training, *ranks, std::min<int>(10, static_cast<int>(steps.size())),
                  w.flops(training.parameters()), computed_in);
}

void list_workloads() {
  for (const Workload& w : all_workloads()) {
    print("{:-15s} L {}, H {}, C {}, F {}, V {}, B {}, ", w.name, w.layers, w.heads, w.width, w.feed_forward,
          w.vocabulary, w.batch);
    if (w.translates) print("S {}, ", w.source_length);
    print("T {}, dropout {}\n", w.length, w.dropout);
  }
}

}  // namespace

int tapeformer::bench_train_step(int argc, char** argv) {
  Options o;
  const CommandLine line("Times full training steps; one line of JSON.");
  line.option("workload", o.workload, "a name, see --list; NAME:BATCH for another batch");
  line.option("--steps", o.steps, "measured ones; as many as take --seconds, 5 to 200, unless given",
              kPositive);
  line.option("--seconds", o.seconds, "", kNotNegative);
  line.option("--threads", o.threads, "all cores unless given", kPositive);
  line.option("--device", o.compute.device, "cpu, cuda or cuda:N");
  line.option("--precision", o.compute.precision,
              "f64, f32, bf16, or on a GPU tf32, as the programs' --precision")
      .one_of({"f64", "f32", "tf32", "bf16"});
  line.option("--length", o.length, "tokens per row; the workload's own unless given", kPositive);
  line.flag("--fused-head", o.fused_head, "the loss in chunks, without logits");
  line.negative_flag("--no-graphs", o.compute.graphs, "on a GPU queue every step kernel by kernel");
  line.flag("--recompute-layers", o.recompute_layers, "layers keep only their input for the backward pass");
  line.flag("--shard-optimizer", o.parallel.shard_optimizer, "under mpirun, each rank keeps its share of it");
  line.flag("--profile", o.profile, "a table of where the time goes, by phase");
  line.flag("--list", o.list, "the workloads and their sizes");
  if (!line.read(argc, argv)) return kExitSuccess;
  if (o.list) return list_workloads(), kExitSuccess;
  Workload w = workload_named(o.workload);
  if (o.length > 0) {
    w.length = o.length;
    if (w.translates) w.source_length = o.length;
  }
  if (o.threads > 0) omp_set_num_threads(o.threads);
  measure(w, o);
  return kExitSuccess;
}
