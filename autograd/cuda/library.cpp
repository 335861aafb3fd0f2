#include <dlfcn.h>
#include <tapeformer/autograd/cuda/library.h>
#include <tapeformer/autograd/error.h>

#include <utility>

namespace tapeformer::cuda {

Library::Library(std::string user, std::string name, const std::vector<std::string>& folders)
    : user_(std::move(user)), name_(std::move(name)), handle_(dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  for (const std::string& folder : folders)
    if (handle_ == nullptr) handle_ = dlopen((folder + "/" + name_).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ != nullptr) return;
  throw DeviceError(user_ + " need " + name_ + ", which cannot be loaded: " + dlerror() +
                    "; try LD_LIBRARY_PATH=(the folder that has it)");
}

Library::Function Library::find(const char* function) const {
  if (void* const address = dlsym(handle_, function)) return {address};
  throw DeviceError(user_ + " need " + function + ", which " + name_ + " lacks; try a newer one");
}

}  // namespace tapeformer::cuda
