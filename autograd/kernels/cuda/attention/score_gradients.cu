#include <tapeformer/autograd/error.h>
#include <tapeformer/autograd/kernels/attention.h>

namespace tapeformer::kernels {

template <class T>
void attention_score_gradients(Cuda, const AttentionShape&, const AttentionOperands<T>&, const T*,
                               const Wide<T>*, const T*, const AttentionScoreGradients<T>&) {
  throw DeviceError(
      "[attention_score_gradients] not on GPUs; try the CPU, or weights, for the composed path");
}

#define INSTANTIATE(T)                                                                              \
  template void attention_score_gradients(Cuda, const AttentionShape&, const AttentionOperands<T>&, \
                                          const T*, const Wide<T>*, const T*,                       \
                                          const AttentionScoreGradients<T>&);
TAPEFORMER_CUDA_TYPES(INSTANTIATE)

}  // namespace tapeformer::kernels
