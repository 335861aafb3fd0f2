#include <tapeformer/autograd/profile.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

namespace tapeformer {

thread_local bool profiled_pass_is_backward = false;

Profile*& OpTimer::active() {
  thread_local Profile* profile = nullptr;
  return profile;
}

double OpTimer::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void OpTimer::charge(Profile& profile) const {
  ProfileLine& line = profile.line_of(op_);
  const double seconds = now() - started_;
  ++line.calls;
  line.seconds += seconds;
  if (!profile.keeps_calls_) return;
  profile.calls_.push_back({op_, line.backward, started_ - profile.begun_, seconds, profile.flops_of_call_,
                            profile.bytes_of_call_});
  profile.flops_of_call_ = profile.bytes_of_call_ = 0;
}

bool is_profiled() { return OpTimer::active() != nullptr; }

void count_flops(const char* op, Index flops) {
  if (Profile* profile = OpTimer::active()) {
    profile->line_of(op).flops += flops;
    profile->flops_of_call_ += flops;
  }
}

void count_bytes(const char* op, Index bytes) {
  if (Profile* profile = OpTimer::active()) {
    profile->line_of(op).bytes += bytes;
    profile->bytes_of_call_ += bytes;
  }
}

ProfileLine& Profile::line_of(const char* op) {
  for (ProfileLine& line : lines_) {
    if (line.op == op && line.backward == profiled_pass_is_backward) return line;
  }
  lines_.push_back({op, profiled_pass_is_backward, 0, 0, 0, 0});
  return lines_.back();
}

Profile::Profile(bool keeps_calls, bool measures_parts)
    : outer_(OpTimer::active()),
      keeps_calls_(keeps_calls),
      measures_parts_(measures_parts),
      begun_(OpTimer::now()) {
  OpTimer::active() = this;
}

Profile::~Profile() { OpTimer::active() = outer_; }

std::vector<ProfileLine> Profile::lines() const {
  std::vector<ProfileLine> sorted = lines_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const ProfileLine& a, const ProfileLine& b) { return a.seconds > b.seconds; });
  return sorted;
}

Index Profile::flops(bool backward) const {
  Index flops = 0;
  for (const ProfileLine& line : lines_) flops += line.backward == backward ? line.flops : 0;
  return flops;
}

std::string Profile::text(double total_seconds) const {
  std::string text;
  double known = 0;
  char line[128];
  for (const ProfileLine& entry : lines()) {
    known += entry.seconds;
    std::snprintf(line, sizeof line, "%-16s %-8s %8lld calls %10.3f ms %6.1f %%", entry.op.c_str(),
                  entry.backward ? "backward" : "forward", static_cast<long long>(entry.calls),
                  1e3 * entry.seconds, 100 * entry.seconds / total_seconds);
    text += line;
    std::snprintf(line, sizeof line, " %8.1f GFLOP/s",
                  1e-9 * static_cast<double>(entry.flops) / entry.seconds);
    text += entry.flops > 0 ? std::string(line) + "\n" : "\n";
  }
  std::snprintf(line, sizeof line, "%-16s %-8s %8s       %10.3f ms %6.1f %%\n", "outside kernels", "", "",
                1e3 * (total_seconds - known), 100 * (1 - known / total_seconds));
  return text + line;
}

}  // namespace tapeformer
