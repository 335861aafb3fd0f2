#include <dlfcn.h>
#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt_functions.h>

#include <string>

namespace tapeformer::cuda {
namespace {

/// A function of a loaded library, as a pointer of any type.
struct Symbol {
  void* address;
  template <class F>
  operator F*() const {
    return reinterpret_cast<F*>(address);
  }
};

void* loaded_library() {
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  for (const std::string& path :
       {name, TAPEFORMER_CUDA_LIBRARIES "/" + name, "/usr/local/cuda/lib64/" + name}) {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw DeviceError("[cublasLt] matrix products need " + name + ", which cannot be loaded: " + dlerror() +
                    "; try LD_LIBRARY_PATH=(the folder it lies in)");
}

BlasFunctions loaded_functions() {
  void* const library = loaded_library();
  const auto find = [&](const char* name) -> Symbol {
    if (void* const address = dlsym(library, name)) return {address};
    throw DeviceError(std::string("[cublasLt] the library has no ") + name +
                      "; try the one this was compiled with");
  };
  return {find("cublasLtCreate"),
          find("cublasLtGetStatusString"),
          find("cublasLtMatmul"),
          find("cublasLtMatmulAlgoGetHeuristic"),
          find("cublasLtMatmulDescCreate"),
          find("cublasLtMatmulDescSetAttribute"),
          find("cublasLtMatmulDescDestroy"),
          find("cublasLtMatrixLayoutCreate"),
          find("cublasLtMatrixLayoutSetAttribute"),
          find("cublasLtMatrixLayoutDestroy"),
          find("cublasLtMatmulPreferenceCreate"),
          find("cublasLtMatmulPreferenceSetAttribute"),
          find("cublasLtMatmulPreferenceDestroy")};
}

}  // namespace

const BlasFunctions& blas() {
  static const BlasFunctions functions = loaded_functions();
  return functions;
}

}  // namespace tapeformer::cuda
