#include <tapeformer/autograd/profile.h>

#include <algorithm>
#include <chrono>

namespace tapeformer {

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

bool is_profiled() { return OpTimer::active != nullptr; }

void count_flops(const char* op, Index flops) {
  if (Profile* profile = OpTimer::active) {
    profile->line_of(op).flops += flops;
    profile->flops_of_call_ += flops;
  }
}

void count_bytes(const char* op, Index bytes) {
  if (Profile* profile = OpTimer::active) {
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
    : outer_(OpTimer::active),
      keeps_calls_(keeps_calls),
      measures_parts_(measures_parts),
      begun_(OpTimer::now()) {
  OpTimer::active = this;
}

Profile::~Profile() { OpTimer::active = outer_; }

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

}  // namespace tapeformer
