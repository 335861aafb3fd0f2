#pragma once

#include <tapeformer/autograd/kernels/attention.h>

#include <limits>

/// The ways to compute attention on a GPU, which the table in paths.cpp lists. A function that returns bool
/// returns false, and queues nothing, if it does not support the case or the device.
namespace tapeformer::kernels {

/// True if more than masks and dropout change the pairs' scores or weights; sinks only join the sums of rows.
template <class T>
bool changes_pairs(const AttentionShape& s, const AttentionOperands<T>& x) {
  return s.function != ScoreFunction::none || s.weighting != AttentionWeighting::softmax ||
         x.relative != nullptr;
}
template <class T>
bool modifies(const AttentionShape& s, const AttentionOperands<T>& x) {
  return changes_pairs(s, x) || x.sinks != nullptr;
}

/// True if the largest score is that of the largest product, also when f32 rounds the scale.
inline bool keeps_order(double scale) { return scale >= double{std::numeric_limits<float>::min()}; }

/// True if rows of this width begin at multiples of 16 bytes and end there.
template <class T>
bool has_aligned_rows(const T* x, const HeadStrides& strides, Index width) {
  return reinterpret_cast<std::uintptr_t>(x) % 16 == 0 &&
         (strides.batch | strides.row | strides.head | width) % (16 / Index{sizeof(T)}) == 0;
}

/// The shared memory that a block may have.
std::size_t shared_room(Cuda on);

/// Few queries and many keys, as in decoding with a cache: several blocks share the keys of one head, and the
/// heads that read the same keys share a block.
template <class T>
bool split_attention_forward(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x, T* y,
                             Wide<T>* log_sum);

/// How blocks share the tiles of queries, or of keys; no result depends on it.
struct HopperSchedule {
  int most_blocks = std::numeric_limits<int>::max();  // at most one for each multiprocessor in any case
  Index cached_bytes = Index{32} << 20;  // of what tiles begun together loop over; an H100's cache has 50 MB
};
/// wgmma and the bulk copy engine, on GPUs of compute capability 9.0.
bool hopper_attention_forward(Cuda on, const AttentionShape& shape, const AttentionOperands<BFloat16>& x,
                              BFloat16* y, float* log_sum, const HopperSchedule& schedule = {});
bool hopper_attention_backward(Cuda on, const AttentionShape& shape, const AttentionOperands<BFloat16>& x,
                               const BFloat16* y, const float* log_sum, const BFloat16* dy,
                               const AttentionGradients<BFloat16>& to, const HopperSchedule& schedule = {});

/// mma.sync, on GPUs of compute capability 8.0 and higher. T is BFloat16, or float, which is rounded to TF32.
template <class T>
bool tensor_core_attention_forward(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x, T* y,
                                   float* log_sum);
template <class T>
bool tensor_core_attention_backward(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x,
                                    const T* y, const float* log_sum, const T* dy,
                                    const AttentionGradients<T>& to);
template <class T>
bool tensor_core_relative_gradient(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x,
                                   const T* y, const float* log_sum, const T* dy,
                                   const Write<float>& drelative);

/// Any case on any device, additive attention too.
template <class T>
bool plain_attention_forward(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x, T* y,
                             Wide<T>* log_sum);
template <class T>
bool plain_attention_backward(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x, const T* y,
                              const Wide<T>* log_sum, const T* dy, const AttentionGradients<T>& to);
template <class T>
void plain_attention_score_gradients(Cuda on, const AttentionShape& shape, const AttentionOperands<T>& x,
                                     const T* y, const Wide<T>* log_sum, const T* dy,
                                     const AttentionScoreGradients<T>& to);

}  // namespace tapeformer::kernels
