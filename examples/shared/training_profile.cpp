#include <tapeformer/autograd/config/json.h>
#include <tapeformer/autograd/format.h>
#include <tapeformer/examples/shared/machine_rates.h>
#include <tapeformer/examples/shared/training_profile.h>

#include <algorithm>
#include <cmath>

namespace tapeformer {
namespace {

constexpr double kLargest = 268435456;  // bytes, beyond all caches; larger operands do not move slower

std::string cell(const char* pattern, double value) { return value > 0 ? format(pattern, value) : "-"; }

}  // namespace

void TrainingProfile::begin_step() {
  if (left_ == 0 || before_-- > 0) return;
  begun_ = now_seconds();
  profile_ = std::make_unique<Profile>(true);
}

bool TrainingProfile::end_step() {
  if (profile_ == nullptr) return false;
  for (const ProfileLine& line : profile_->lines()) {
    const auto same = [&](const ProfileLine& l) { return l.op == line.op && l.backward == line.backward; };
    auto sum = std::find_if(lines_.begin(), lines_.end(), same);
    if (sum == lines_.end()) sum = lines_.insert(lines_.end(), ProfileLine{line.op, line.backward});
    sum->calls += line.calls, sum->seconds += line.seconds;
    sum->flops += line.flops, sum->bytes += line.bytes;
  }
  for (ProfileCall call : profile_->calls()) {
    call.started += seconds_;  // places the steps one after the other
    calls_.push_back(call);
  }
  seconds_ += now_seconds() - begun_;
  profile_.reset();
  ++steps_;
  return --left_ == 0;
}

std::string TrainingProfile::text(const MachineRates& machine) const {
  std::vector<ProfileLine> sorted = lines_;
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  const auto steps = static_cast<double>(steps_);
  const auto line = [](const std::string& name, const std::vector<std::string>& cells) {
    const auto padded = [](const std::string& cell) { return format("{:11s}", cell); };
    return format("{:-34s}{}\n", name, joined(cells, "", padded));
  };
  std::string text =
      line("operation", {"pass", "calls", "ms per step", "share", "GFLOP/s", "GB/s", "of best"});
  double in_kernels = 0, floors = 0;
  for (const ProfileLine& op : sorted) {
    const auto flops = static_cast<double>(op.flops), bytes = static_cast<double>(op.bytes);
    const double moving =
        bytes > 0 ? bytes / machine.bytes_per_second(bytes / static_cast<double>(op.calls)) : 0;
    const double floor = std::max(flops / machine.flops, moving);
    in_kernels += op.seconds, floors += floor;
    text += line(op.op,
                 {op.backward ? "backward" : "forward", format("{}", static_cast<double>(op.calls) / steps),
                  format("{:.3f}", 1e3 * op.seconds / steps), format("{:.1f} %", 100 * op.seconds / seconds_),
                  cell("{:.1f}", 1e-9 * flops / op.seconds), cell("{:.1f}", 1e-9 * bytes / op.seconds),
                  cell("{:.0f} %", 100 * floor / op.seconds)});
  }
  const double outside = seconds_ - in_kernels;
  text += line("outside kernels", {"", "", format("{:.3f}", 1e3 * outside / steps),
                                   format("{:.1f} %", 100 * outside / seconds_)});
  text += line("a step", {"", "", format("{:.3f}", 1e3 * seconds_ / steps), "100.0 %", "", "",
                          format("{:.0f} %", 100 * floors / seconds_)});
  return text +
         format(
             "at its best this machine does {:.0f} GFLOP/s in f32, and moves {:.1f} GB/s from and to memory",
             1e-9 * machine.flops, 1e-9 * machine.bytes_per_second(kLargest));
}

void TrainingProfile::report(Progress& progress, const RunFolder& folder) const {
  progress.status("measuring what this machine does at its best");
  const auto bytes_per_second = [](double bytes) {
    return bandwidth(std::exp2(std::round(std::log2(std::clamp(bytes, 1.0, kLargest)))), true);
  };
  progress.log(text({peak_rate<float>(), bytes_per_second}));
  folder.write("trace.json", trace().dump());
  progress.log("the timeline is in " + folder.file("trace.json") +
               "; chrome://tracing and ui.perfetto.dev show it");
}

Json TrainingProfile::trace() const {
  Json events = Json::array();
  for (const ProfileCall& call : calls_) {
    events.push_back({{"name", call.op},
                      {"cat", call.backward ? "backward" : "forward"},
                      {"ph", "X"},
                      {"ts", 1e6 * call.started},
                      {"dur", 1e6 * call.seconds},
                      {"pid", 1},
                      {"tid", 1},
                      {"args", {{"flops", call.flops}, {"bytes", call.bytes}}}});
  }
  return {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
}

}  // namespace tapeformer
