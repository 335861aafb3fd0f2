#pragma once

#include <string>
#include <vector>

namespace tapeformer::cuda {

/// A library of the toolkit that is loaded when it is needed, and stays: programs start without it, also on
/// machines that have none.
class Library {
 public:
  /// A function, as a pointer of any type.
  struct Function {
    void* address;
    template <class F>
    operator F*() const {
      return reinterpret_cast<F*>(address);
    }
  };

  /// Looks where programs find libraries, then in `folders`. `user` reads "[cublasLt] matrix products".
  /// Throws:  DeviceError if it cannot be loaded
  Library(std::string user, std::string name, const std::vector<std::string>& folders);
  /// Throws:  DeviceError if it has none of that name
  Function find(const char* function) const;

 private:
  std::string user_, name_;
  void* handle_ = nullptr;
};

}  // namespace tapeformer::cuda
