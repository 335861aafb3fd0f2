#pragma once

#if __has_include(<libraries/emulated_cublaslt.h>)
#include <libraries/emulated_cublaslt.h>  // the host plays the library, in the tests
#else
#include <cublasLt.h>
#endif

namespace tapeformer::cuda {

/// The functions of cuBLASLt.
struct BlasFunctions {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) product_create;
  decltype(&cublasLtMatmulDescSetAttribute) product_set;
  decltype(&cublasLtMatmulDescDestroy) product_destroy;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
};

/// Loads the library at the first call: it has half a gigabyte, and programs that use only the CPU would
/// start a quarter of a second later.
/// Throws:  DeviceError if it cannot be loaded
const BlasFunctions& blas();

}  // namespace tapeformer::cuda
