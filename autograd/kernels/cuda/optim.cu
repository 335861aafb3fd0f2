#include <tapeformer/autograd/kernels/cuda/device.h>
#include <tapeformer/autograd/kernels/optim.h>

namespace tapeformer::kernels {
namespace {

template <class T>
__global__ void adamw_step_kernel(Index count, AdamWFactors<T> by, const T* gradient, T* first_moment,
                                  T* second_moment, T* value, BFloat16* shadow) {
  for_each_index(count, [&](Index i) {
    const T g = gradient[i] * by.scale;
    const T m = first_moment[i] + by.weight1 * (g - first_moment[i]);
    const T v = by.beta2 * second_moment[i] + by.weight2 * g * g;
    const T x = value[i] * by.keep - by.step_size * m / (sqrt(v) / by.root_correction2 + by.epsilon);
    first_moment[i] = m;
    second_moment[i] = v;
    value[i] = x;
    if (shadow != nullptr) shadow[i] = BFloat16(x);
  });
}

template <class T>
__global__ void sgd_step_kernel(Index count, T scale, T decay, T momentum, T rate, const T* gradient,
                                T* velocity, T* value, BFloat16* shadow) {
  for_each_index(count, [&](Index i) {
    T step = gradient[i] * scale + decay * value[i];
    if (velocity != nullptr) {
      step += momentum * velocity[i];
      velocity[i] = step;
    }
    const T x = value[i] - rate * step;
    value[i] = x;
    if (shadow != nullptr) shadow[i] = BFloat16(x);
  });
}

/// A block a part.
template <class T>
__global__ void sum_of_squares_kernel(Index count, const T* x, double* sums) {
  const Index part = blockIdx.x, end = count * (part + 1) / kSquareParts;
  double sum = 0;
  for (Index i = count * part / kSquareParts + threadIdx.x; i < end; i += blockDim.x)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[part] = sum;
}

template <class T>
__global__ void scale_in_place_kernel(Index count, T factor, T* x) {
  for_each_index(count, [&](Index i) { x[i] *= factor; });
}

}  // namespace

template <class T>
void adamw_step(Cuda on, Index count, const AdamWStep& step, const T* gradient, T* first_moment,
                T* second_moment, T* value, BFloat16* shadow) {
  launch(on, "adamw_step", adamw_step_kernel<T>, blocks_for(count), dim3(kBlock), 0, count,
         AdamWFactors<T>(step), gradient, first_moment, second_moment, value, shadow);
}

template <class T>
void sgd_step(Cuda on, Index count, const SgdStep& step, const T* gradient, T* velocity, T* value,
              BFloat16* shadow) {
  launch(on, "sgd_step", sgd_step_kernel<T>, blocks_for(count), dim3(kBlock), 0, count, step.gradient_scale,
         step.weight_decay, step.momentum, step.learning_rate, gradient, velocity, value, shadow);
}

template <class T>
void sum_of_squares(Cuda on, Index count, const T* x, double* sums) {
  launch(on, "sum_of_squares", sum_of_squares_kernel<T>, dim3(static_cast<unsigned>(kSquareParts)),
         dim3(count < kSquareParts * kBlock * 4 ? kBlock : 1024), 0, count, x, sums);
}

template <class T>
void scale_in_place(Cuda on, Index count, double factor, T* x) {
  launch(on, "scale_in_place", scale_in_place_kernel<T>, blocks_for(count), dim3(kBlock), 0, count, factor,
         x);
}

#define INSTANTIATE(T)                                                                      \
  template void adamw_step(Cuda, Index, const AdamWStep&, const T*, T*, T*, T*, BFloat16*); \
  template void sgd_step(Cuda, Index, const SgdStep&, const T*, T*, T*, BFloat16*);         \
  template void sum_of_squares(Cuda, Index, const T*, double*);                             \
  template void scale_in_place(Cuda, Index, double, T*);
INSTANTIATE(float)
INSTANTIATE(double)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
