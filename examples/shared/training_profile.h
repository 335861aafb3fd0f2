#pragma once

#include <tapeformer/autograd/profile.h>
#include <tapeformer/examples/shared/progress.h>
#include <tapeformer/examples/shared/run_folder.h>

namespace tapeformer {

/// The peak rates of this machine, measured with all threads.
struct MachineRates {
  double flops = 0;                                ///< FLOP/s in f32
  std::function<double(double)> bytes_per_second;  ///< for operands of this many bytes in total
};

/// Times the operations of a few steps of a run, for --profile.
class TrainingProfile {
 public:
  /// Measures `steps` steps, after two that fill caches and pools.
  explicit TrainingProfile(Index steps) : left_(steps) {}

  void begin_step();
  /// True when the last step to be measured has ended.
  bool end_step();
  /// True between the first and the last step to be measured.
  bool is_partial() const { return steps_ > 0 && left_ > 0; }

  /// A table of operations, slowest first: time, FLOP/s, bytes per second, and the share of the time that the
  /// machine would take at its best: the longer of FLOPs / peak rate and bytes / bandwidth.
  std::string text(const MachineRates& machine) const;
  /// Logs the text, and writes the timeline to trace.json.
  void report(Progress& progress, const RunFolder& folder) const;
  /// The timeline in the Trace Event Format, which chrome://tracing and Perfetto show.
  Json trace() const;

 private:
  static constexpr Index kStepsBefore = 2;
  Index before_ = kStepsBefore, left_;
  Index steps_ = 0;                   // measured
  std::unique_ptr<Profile> profile_;  // of the current step
  double begun_ = 0, seconds_ = 0;    // start of the current step; duration of all earlier ones
  std::vector<ProfileLine> lines_;
  std::vector<ProfileCall> calls_;
};

}  // namespace tapeformer
