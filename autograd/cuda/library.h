#pragma once

#include <string>
#include <vector>

namespace tapeformer::cuda {

/// A library that is loaded on demand, and stays loaded: programs also start on machines without it.
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

  /// Searches the usual places of libraries, then `folders`. `user` reads "[cublasLt] matrix products".
  /// Throws:  DeviceError if it cannot be loaded
  Library(std::string user, std::string name, const std::vector<std::string>& folders);
  /// Throws:  DeviceError if the library lacks the function
  Function find(const char* function) const;

 private:
  std::string user_, name_;
  void* handle_ = nullptr;
};

}  // namespace tapeformer::cuda
