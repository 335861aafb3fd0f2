#pragma once

#include <tapeformer/autograd/bfloat16.h>
#include <tapeformer/autograd/device.h>
#include <tapeformer/autograd/shape.h>

#include <limits>

namespace tapeformer::kernels {

/// The first argument of every kernel, which selects its overload for the CPU or for a GPU.
struct Cpu {};
struct Cuda {
  int device = 0;
};
/// Declares a kernel's two overloads, templates over the type T, and their types, name_on<Cpu, T> and
/// name_on<Cuda, T>; the parameters follow the name.
#define TAPEFORMER_KERNEL(name, ...) \
  template <class T>                 \
  void name(Cpu, __VA_ARGS__);       \
  template <class T>                 \
  void name(Cuda, __VA_ARGS__);      \
  template <class On, class T>       \
  using name##_on = void(On, __VA_ARGS__)
/// Declares the two overloads of a kernel that has no type T.
#define TAPEFORMER_PLAIN_KERNEL(name, ...) \
  void name(Cpu, __VA_ARGS__);             \
  void name(Cuda, __VA_ARGS__)
/// Compiles a kernel, after its definition, for f32 and f64, or for every type of the CPU or of a GPU.
#define TAPEFORMER_WIDE_KERNEL(on, name)     \
  template name##_on<on, float> name<float>; \
  template name##_on<on, double> name<double>
#define TAPEFORMER_CPU_KERNEL(name) TAPEFORMER_WIDE_KERNEL(Cpu, name)
#define TAPEFORMER_CUDA_KERNEL(name)  \
  TAPEFORMER_WIDE_KERNEL(Cuda, name); \
  template name##_on<Cuda, BFloat16> name<BFloat16>

/// The type in which values of type T are computed, summed and kept as statistics: float for BFloat16, else
/// T.
template <class T>
struct WideOf {
  using Type = T;
};
template <>
struct WideOf<BFloat16> {
  using Type = float;
};
template <class T>
using Wide = typename WideOf<T>::Type;

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

/// Expands to use(T) for f32 and f64.
#define TAPEFORMER_CPU_TYPES(use) use(float) use(double)

/// The keys [from, to).
struct KeyRange {
  Index from = 0, to = 0;
  TAPEFORMER_HOST_DEVICE Index size() const { return to - from; }
};

/// The destination of a kernel's gradient: assigned, or added to; nullptr if it is not needed.
template <class T>
struct Write {
  T* to = nullptr;
  bool add = false;
  TAPEFORMER_HOST_DEVICE explicit operator bool() const { return to != nullptr; }
  TAPEFORMER_HOST_DEVICE void put(Index i, Wide<T> value) const {
    to[i] = static_cast<T>(add ? static_cast<Wide<T>>(to[i]) + value : value);
  }
};

}  // namespace tapeformer::kernels
