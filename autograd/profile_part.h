#pragma once

#include <tapeformer/autograd/profile.h>

#include <string>

namespace tapeformer {

/// Around the forward pass of a part of a model: what it takes is measured by a Profile that measures parts,
/// and it is nothing without one. Parts nest, and those of one name add up.
class ProfilePart {
 public:
  /// Named `name`, with `number` if it is one of several: "layers.0", or "0" without a name.
  explicit ProfilePart(const char* name, Index number = -1);
  ~ProfilePart();
  ProfilePart(const ProfilePart&) = delete;
  ProfilePart& operator=(const ProfilePart&) = delete;

 private:
  Profile* profile_;
  std::string around_;  // the part that it lies within
  Index flops_before_ = 0, saved_before_ = 0;
};

}  // namespace tapeformer
