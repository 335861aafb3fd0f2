#pragma once

#include <tapeformer/autograd/profile.h>

#include <string>

namespace tapeformer {

/// While it lives, a Profile that measures parts counts the costs of forward passes as those of a part of the
/// model. Parts nest, and the costs of parts with the same name are added.
class ProfilePart {
 public:
  /// A part named `name`, with `number` if it is one of several: "layers.0", or "0" without a name.
  explicit ProfilePart(const char* name, Index number = -1);
  ~ProfilePart();
  ProfilePart(const ProfilePart&) = delete;
  ProfilePart& operator=(const ProfilePart&) = delete;

 private:
  Profile* profile_;
  std::string around_;  // the part around it
  Index flops_before_ = 0, saved_before_ = 0;
};

}  // namespace tapeformer
