#pragma once

#include <tapeformer/autograd/shape.h>

#include <string>
#include <vector>

namespace tapeformer {

/// All runs of one operation's kernels, forward or backward.
struct ProfileLine {
  std::string op;         ///< the operation's name
  bool backward = false;  ///< ran inside a reverse pass
  Index calls = 0;        ///< runs of its kernels
  double seconds = 0;     ///< their total duration
  Index flops = 0;        ///< of its products, 2 for each multiply-add; see count_flops()
  Index bytes = 0;        ///< of the operands that its kernels read and write, once per call
};

/// One kernel's run.
struct ProfileCall {
  std::string op;         ///< the operation's name
  bool backward = false;  ///< ran inside a reverse pass
  /// Its start, in seconds since the Profile was made, and its duration.
  double started = 0, seconds = 0;
  /// As in ProfileLine, for this run.
  Index flops = 0, bytes = 0;
};

/// Costs of a named part of a model in forward passes, with the parts within it: see profile_part.h.
struct ProfiledPart {
  std::string name;       ///< after those of the parts around it: "layers.0.attention"
  Index flops = 0;        ///< of its products, 2 for each multiply-add
  Index saved_bytes = 0;  ///< kept by the tape for the backward pass, without parameters
};

/// Times every kernel that this thread runs while it lives (on a GPU only the queueing), and counts the
/// operations of its products and the bytes of its operands, by operation. Without one nothing is counted.
class Profile {
 public:
  /// `keeps_calls`: also keeps every single run of a kernel, for a timeline. `measures_parts`: also measures
  /// the parts of a model, which scans the tape at the beginning and the end of each part.
  explicit Profile(bool keeps_calls = false, bool measures_parts = false);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// The operations, slowest first.
  std::vector<ProfileLine> lines() const;
  /// The runs in the order in which they ended; none unless they are kept.
  const std::vector<ProfileCall>& calls() const { return calls_; }
  /// The parts in the order in which they began; none unless they are measured.
  const std::vector<ProfiledPart>& parts() const { return parts_; }
  /// Floating-point operations of all products so far, in forward or in reverse passes.
  Index flops(bool backward) const;

 private:
  friend class OpTimer;
  friend class ProfilePart;
  friend void count_flops(const char* op, Index flops);
  friend void count_bytes(const char* op, Index bytes);
  ProfileLine& line_of(const char* op);
  Profile* outer_;
  const bool keeps_calls_, measures_parts_;
  const double begun_;
  Index flops_of_call_ = 0, bytes_of_call_ = 0;
  std::vector<ProfileLine> lines_;
  std::vector<ProfileCall> calls_;
  std::vector<ProfiledPart> parts_;
  std::string part_;  // the running one
};

/// Set by a Tape while it runs backward.
inline thread_local bool profiled_pass_is_backward = false;

/// True while a Profile measures this thread, so that counting may cost something.
bool is_profiled();

/// Adds floating-point operations to `op`, 2 for each multiply-add; called by matrix products and attention.
/// Sums, exponentials and the like are not counted.
void count_flops(const char* op, Index flops);
/// Adds bytes that a kernel reads or writes to `op`; called by dispatch() with those of its operands.
void count_bytes(const char* op, Index bytes);

/// Adds its lifetime to `op`; dispatch() makes one around every kernel.
class OpTimer {
 public:
  explicit OpTimer(const char* op) : op_(op), started_(active != nullptr ? now() : 0) {}
  ~OpTimer() {
    if (active != nullptr) charge(*active);
  }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;

 private:
  friend class Profile;
  friend class ProfilePart;
  friend bool is_profiled();
  friend void count_flops(const char* op, Index flops);
  friend void count_bytes(const char* op, Index bytes);
  inline static thread_local Profile* active = nullptr;
  static double now();
  void charge(Profile& profile) const;
  const char* op_;
  double started_;
};

}  // namespace tapeformer
