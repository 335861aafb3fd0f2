// Whether training on a GPU agrees with training on the CPU: a small translation model and the character
// model learn one batch by heart, without dropout, the same steps in each precision; and how far the losses
// are from those of the CPU in double.
// Usage: bench device_agreement [--device cuda[:N]] [--steps N] [--tiny]
// Exit code 0: all verdicts hold, 1: one does not, 2: there is no such GPU.
#include <tapeformer/autograd/error.h>
#include <tapeformer/examples/shared/command_line.h>
#include <tapeformer/examples/shared/program.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/tests/bench/training.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace tapeformer;

namespace {

// Allowed differences, relative to the loss. No f32 run need be nearer to double than the rounding of a few
// values.
constexpr double kInDouble = 1e-9, kTimesTheCpus = 2, kRounding = 2.5e-7, kFollowing = 0.05;

struct Run {
  std::string name;
  Device device;
  DType type = DType::f32;
  std::string precision = "f32";
  std::vector<double> losses{};
  double seconds = 0;
};

Run trained(Run run, int steps, const Workload& workload) {
  TrainingVariant variant;
  variant.type = run.type;
  variant.compute = {run.device, run.precision, false};
  // Not relu: at its kink a rounding decides whether an element has a gradient, and the losses diverge.
  variant.activation = Unary::gelu;
  variant.redraws = false;
  Training training(workload, variant);
  for (int step = 0; step < steps; ++step) {
    run.seconds += sum(training.step());
    run.losses.push_back(training.loss());
  }
  return run;
}

/// The largest of |a - b| / |b|, infinite when a value is NaN.
double distance(const Run& a, const Run& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) {
    const double one = std::fabs(a.losses[i] - b.losses[i]) / std::fabs(b.losses[i]);
    if (!std::isfinite(one)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, one);
  }
  return largest;
}

bool agrees(const Workload& workload, Device device, int steps) {
  print("{}, {} steps\n{:-26s} {:10s} {:10s}  {:-30s} {:9s}\n", workload.name, steps, "", "first loss",
        "last loss", "largest difference to exact", "seconds");
  std::vector<Run> runs;
  const auto add = [&](const Run& planned) {
    runs.push_back(trained(planned, steps, workload));
    const Run& run = runs.back();
    print("{:-26s} {:10.6f} {:10.6f}  {:-30s} {:9.2f}\n", run.name, run.losses.front(), run.losses.back(),
          runs.size() == 1 ? "exact" : format("{:.1e}", distance(run, runs.front())), run.seconds);
    std::fflush(stdout);
  };
  const std::string there = device.text();
  add({"cpu, f64", Device::cpu(), DType::f64});
  add({"cpu, f32", Device::cpu()});
  add({there + ", f64", device, DType::f64});
  add({there + ", f32", device});
  add({there + ", tf32", device, DType::f32, "tf32"});
  add({there + ", bf16", device, DType::f32, "bf16"});
  add({there + ", f32 again", device});
  add({there + ", bf16 again", device, DType::f32, "bf16"});
  const Run &exact = runs[0], &here = runs[1], &in_double = runs[2], &strict = runs[3], &tf32 = runs[4],
            &bf16 = runs[5];
  bool all = true;
  const auto verdict = [&](bool holds, const std::string& rule) {
    print("{:-6s} {}\n", holds ? "ok" : "FAILED", rule);
    all = all && holds;
  };
  const auto within = [&](const std::string& rule, const Run& run, const Run& of, double bound) {
    const double far = distance(run, of);
    verdict(far <= bound, format("{} ({:.1e}): {:.1e}", rule, bound, far));
  };
  within("in double as near to the CPU as rounding allows", in_double, exact, kInDouble);
  within("strict f32 within twice the distance of the CPU's f32 from its double", strict, exact,
         kTimesTheCpus * std::max(distance(here, exact), kRounding));
  within("tf32 within 5 % of f32 at every step", tf32, strict, kFollowing);
  within("bf16 within 5 % of f32 at every step", bf16, strict, kFollowing);
  verdict(tf32.losses != strict.losses && bf16.losses != strict.losses && bf16.losses != tf32.losses,
          "each precision is one of its own");
  verdict(runs[6].losses == strict.losses && runs[7].losses == bf16.losses,
          "the same seed gives the same bits twice, in f32 and in bf16");
  print("\n");
  return all;
}

}  // namespace

int tapeformer::bench_device_agreement(int argc, char** argv) {
  std::string name = "cuda";
  int steps = 100;
  bool tiny = false;
  const CommandLine line("Trains on the CPU and on a GPU in each precision, and compares the losses.");
  line.option("--device", name, "cuda or cuda:N");
  line.option("--steps", steps, "of each run", kPositive);
  line.flag("--tiny", tiny, "models and batches that an emulated GPU has done with in seconds");
  if (!line.read(argc, argv)) return kExitSuccess;
  const Device device = Device::named(name);
  if (!device.is_cuda()) throw Error("--device must be a GPU, which is compared with the CPU; got " + name);
  print("{}, losses of runs without dropout\n\n", Compute{device}.text());
  const std::vector<Workload> usual = {{"translation model", true, 2, 4, 64, 256, 60, 32, 17, 16},
                                       {"character model", false, 4, 4, 128, 512, 65, 12, 64}};
  const std::vector<Workload> small = {{"translation model", true, 1, 4, 16, 32, 60, 3, 7, 6},
                                       {"character model", false, 1, 4, 16, 64, 65, 2, 8}};
  bool all = true;
  for (const Workload& workload : tiny ? small : usual) all = agrees(workload, device, steps) && all;
  print("{}\n", all ? "devices agree" : "devices do NOT agree");
  return all ? kExitSuccess : 1;
}
