#include <tapeformer/autograd/config/names.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/format.h>

#include <algorithm>

namespace tapeformer {

std::vector<std::string> all_names(const EnumNames& names) {
  const auto end = std::find(std::begin(names.names), std::end(names.names), nullptr);
  return {std::begin(names.names), end};
}

std::size_t place_of(const std::string& name, const EnumNames& names) {
  const std::vector<std::string> all = all_names(names);
  const auto found = std::find(all.begin(), all.end(), name);
  if (found == all.end())
    throw Error(std::string(names.what) + " must be " + alternatives(all) + "; got " + name);
  return static_cast<std::size_t>(found - all.begin());
}

}  // namespace tapeformer
