#include <tapeformer/autograd/cuda/library.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt_functions.h>

namespace tapeformer::cuda {

const BlasFunctions& blas() {
  static const Library library("[cublasLt] matrix products",
                               "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR),
                               {TAPEFORMER_CUDA_LIBRARIES, "/usr/local/cuda/lib64"});
  static const BlasFunctions functions = {library.find("cublasLtCreate"),
                                          library.find("cublasLtGetStatusString"),
                                          library.find("cublasLtMatmul"),
                                          library.find("cublasLtMatmulAlgoGetHeuristic"),
                                          library.find("cublasLtMatmulDescCreate"),
                                          library.find("cublasLtMatmulDescSetAttribute"),
                                          library.find("cublasLtMatmulDescDestroy"),
                                          library.find("cublasLtMatrixLayoutCreate"),
                                          library.find("cublasLtMatrixLayoutSetAttribute"),
                                          library.find("cublasLtMatrixLayoutDestroy"),
                                          library.find("cublasLtMatmulPreferenceCreate"),
                                          library.find("cublasLtMatmulPreferenceSetAttribute"),
                                          library.find("cublasLtMatmulPreferenceDestroy")};
  return functions;
}

}  // namespace tapeformer::cuda
