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
  Index flops = 0;  ///< of its products, 2 for each multiply-add; see count_flops()
};

/// Times every kernel that this thread runs while it lives, and counts the operations of its products, by
/// operation. Costs nothing when there is none.
class Profile {
 public:
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Sorted by time, slowest first.
  std::vector<ProfileLine> lines() const;
  /// Floating-point operations of all products so far, in forward or in reverse passes.
  Index flops(bool backward) const;
  /// A table with each line's share of `total_seconds`; time outside kernels comes last.
  std::string text(double total_seconds) const;

 private:
  friend class OpTimer;
  friend void count_flops(const char* op, Index flops);
  ProfileLine& line_of(const char* op);
  Profile* outer_;
  std::vector<ProfileLine> lines_;
};

/// Set by a Tape while it runs backward.
extern thread_local bool profiled_pass_is_backward;

/// True while a Profile measures this thread, so that counting may cost something.
bool is_profiled();

/// Adds floating-point operations to `op`, 2 for each multiply-add: matrix products and attention call it,
/// where the sizes are known. Sums, exponentials and the like are not counted.
void count_flops(const char* op, Index flops);

/// Adds its lifetime to `op`; dispatch() makes one around every kernel.
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
  friend bool is_profiled();
  friend void count_flops(const char* op, Index flops);
  static Profile*& active();
  static double now();
  void charge(Profile& profile) const;
  const char* op_;
  double started_;
};

}  // namespace tapeformer
