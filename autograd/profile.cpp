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
  auto line = std::find_if(profile.lines_.begin(), profile.lines_.end(), [&](const ProfileLine& known) {
    return known.op == op_ && known.backward == profiled_pass_is_backward;
  });
  if (line == profile.lines_.end()) {
    profile.lines_.push_back({op_, profiled_pass_is_backward, 0, 0});
    line = profile.lines_.end() - 1;
  }
  ++line->calls;
  line->seconds += now() - started_;
}

Profile::Profile() : outer_(OpTimer::active()) { OpTimer::active() = this; }

Profile::~Profile() { OpTimer::active() = outer_; }

std::vector<ProfileLine> Profile::lines() const {
  std::vector<ProfileLine> sorted = lines_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const ProfileLine& a, const ProfileLine& b) { return a.seconds > b.seconds; });
  return sorted;
}

std::string Profile::text(double total_seconds) const {
  std::string text;
  double known = 0;
  char line[128];
  for (const ProfileLine& entry : lines()) {
    known += entry.seconds;
    std::snprintf(line, sizeof line, "%-16s %-8s %8lld calls %10.3f ms %6.1f %%\n", entry.op.c_str(),
                  entry.backward ? "backward" : "forward", static_cast<long long>(entry.calls),
                  1e3 * entry.seconds, 100 * entry.seconds / total_seconds);
    text += line;
  }
  std::snprintf(line, sizeof line, "%-16s %-8s %8s       %10.3f ms %6.1f %%\n", "outside kernels", "", "",
                1e3 * (total_seconds - known), 100 * (1 - known / total_seconds));
  return text + line;
}

}  // namespace tapeformer
