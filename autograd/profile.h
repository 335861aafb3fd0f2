#pragma once

#include <tapeformer/autograd/shape.h>

#include <string>
#include <vector>

namespace tapeformer {

struct ProfileLine {
  std::string op;
  bool backward = false;  ///< ran inside a reverse pass
  Index calls = 0;
  double seconds = 0;
};

/// Times every kernel this thread runs while it lives, by operation. Costs nothing when there is none.
class Profile {
 public:
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// The slowest first.
  std::vector<ProfileLine> lines() const;
  /// A table with each line's share of `total_seconds`; what no kernel accounts for comes last.
  std::string text(double total_seconds) const;

 private:
  friend class OpTimer;
  Profile* outer_;
  std::vector<ProfileLine> lines_;
};

/// Set by a Tape while it runs backward.
extern thread_local bool profiled_pass_is_backward;

/// Charges its lifetime to `op`; dispatch() makes one around every kernel.
class OpTimer {
 public:
  explicit OpTimer(const char* op) : op_(op), started_(active() != nullptr ? now() : 0) {}
  ~OpTimer() {
    if (Profile* profile = active()) charge(*profile);
  }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  friend class Profile;
  static Profile*& active();
  static double now();
  void charge(Profile& profile) const;
  const char* op_;
  double started_;
};

}  // namespace tapeformer
