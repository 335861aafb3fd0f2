#include <tapeformer/autograd/profile_part.h>
#include <tapeformer/autograd/tape/tape.h>

#include <algorithm>

namespace tapeformer {
namespace {

Index saved_bytes() {
  if (Tape::current() == nullptr) return 0;
  const TapeMemory memory = Tape::current()->memory();
  return memory.saved_bytes - memory.parameter_bytes;
}

}  // namespace

// A layer that is recomputed in the backward pass has already been measured.
ProfilePart::ProfilePart(const char* name, Index number) : profile_(OpTimer::active) {
  if (profile_ != nullptr && (!profile_->measures_parts_ || profiled_pass_is_backward)) profile_ = nullptr;
  if (profile_ == nullptr) return;
  around_ = profile_->part_;
  for (const std::string& level : {std::string(name), number >= 0 ? std::to_string(number) : ""})
    if (!level.empty()) profile_->part_ += (profile_->part_.empty() ? "" : ".") + level;
  const auto has_name = [&](const ProfiledPart& part) { return part.name == profile_->part_; };
  std::vector<ProfiledPart>& parts = profile_->parts_;
  if (std::none_of(parts.begin(), parts.end(), has_name)) parts.push_back({profile_->part_});
  flops_before_ = profile_->flops(false);
  saved_before_ = saved_bytes();
}

ProfilePart::~ProfilePart() {
  if (profile_ == nullptr) return;
  for (ProfiledPart& part : profile_->parts_) {
    if (part.name != profile_->part_) continue;
    part.flops += profile_->flops(false) - flops_before_;
    part.saved_bytes += saved_bytes() - saved_before_;
  }
  profile_->part_ = around_;
}

}  // namespace tapeformer
