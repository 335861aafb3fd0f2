#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/cuda/unary.h>

#include <cstdint>

namespace tapeformer::kernels {
namespace {

template <Unary f, class T>
struct Value {
  __device__ T operator()(T x) const { return unary_value<f>(x); }
};
template <Unary f, class T>
struct Gradient {
  __device__ T operator()(T saved, T dy) const { return unary_gradient<f>(saved, dy); }
};

template <Unary f, class T>
__global__ void forward_with_derivative_kernel(Index count, T* x, T* y) {
  for_each_index(count, [&](Index i) {
    const auto at = value_and_derivative<f>(static_cast<Wide<T>>(x[i]));
    y[i] = static_cast<T>(at.value);
    x[i] = static_cast<T>(at.derivative);
  });
}

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Subtract {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a - b;
  }
};
struct Multiply {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a * b;
  }
};
struct Divide {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a / b;
  }
};
struct Equal {
  template <class T>
  __device__ bool operator()(T a, T b) const {
    return a == b;
  }
};
struct And {
  __device__ bool operator()(bool a, bool b) const { return a && b; }
};
template <class T>
struct Affine {
  T factor, offset;
  __device__ T operator()(T x) const { return factor * x + offset; }
};
template <class T>
struct Power {
  T exponent;
  __device__ T operator()(T x) const { return pow(x, exponent); }
};

/// Where the operands of the i-th result are.
struct Offsets {
  Index a, b, c;
};
__device__ Offsets offsets_at(const Broadcast& s, Index i) {
  Offsets at{0, 0, 0};
  const auto step = [&](int axis, Index k) {
    at.a += k * s.strides_a[axis];
    at.b += k * s.strides_b[axis];
    at.c += k * s.strides_c[axis];
  };
  for (int axis = s.axes - 1; axis > 0; --axis) {
    const Division place = divide(i, s.sizes[axis]);
    step(axis, place.remainder);
    i = place.quotient;
  }
  step(0, i);
  return at;
}

template <class F, class X, class Y>
__global__ void broadcast_kernel(Index count, Broadcast s, F f, const X* a, const X* b, Y* y) {
  for_each_index(count, [&](Index i) {
    const Offsets at = offsets_at(s, i);
    y[i] = static_cast<Y>(f(static_cast<Wide<X>>(a[at.a]), static_cast<Wide<X>>(b[at.b])));
  });
}

template <class F, class X, class Y>
void broadcast(Cuda on, const char* name, const Broadcast& s, F f, const X* a, const X* b, Y* y) {
  const Index count = s.elements();
  if (s.axes == 1 && s.strides_a[0] == 1 && s.strides_b[0] == 1)
    return map(on, name, count, f, Write<Y>{y, false}, a, b);
  launch(on, name, broadcast_kernel<F, X, Y>, blocks_for(count), dim3(kBlock), 0, count, s, f, a, b, y);
}

template <class T>
__global__ void where_kernel(Index count, Broadcast s, const bool* condition, const T* a, const T* b, T* y) {
  for_each_index(count, [&](Index i) {
    const Offsets at = offsets_at(s, i);
    y[i] = condition[at.c] ? a[at.a] : b[at.b];
  });
}

/// Lowers `first` to the position of the first NaN or infinity.
template <class T>
__global__ void first_non_finite_kernel(Index count, const T* x, unsigned long long* first) {
  for_each_index(count, [&](Index i) {
    if (!isfinite(static_cast<Wide<T>>(x[i]))) atomicMin(first, static_cast<unsigned long long>(i));
  });
}

}  // namespace

template <class T>
void unary_forward(Cuda on, Unary f, Index count, const T* x, T* y) {
  with_unary(f, [&](auto constant) {
    map(on, "unary_forward", count, Value<decltype(constant)::value, Wide<T>>{}, Write<T>{y, false}, x);
  });
}

template <class T>
void unary_backward(Cuda on, Unary f, Index count, const T* saved, const T* dy, Write<T> dx) {
  with_unary(f, [&](auto constant) {
    map(on, "unary_backward", count, Gradient<decltype(constant)::value, Wide<T>>{}, dx, saved, dy);
  });
}

template <class T>
void unary_forward_with_derivative(Cuda on, Unary f, Index count, T* x, T* y) {
  with_unary(f, [&](auto constant) {
    if constexpr (!saves_output(decltype(constant)::value)) {
      launch(on, "unary_forward_with_derivative",
             forward_with_derivative_kernel<decltype(constant)::value, T>, blocks_for(count), dim3(kBlock), 0,
             count, x, y);
    }
  });
}

template <class T>
void binary(Cuda on, Binary f, const Broadcast& sizes, const T* a, const T* b, T* y) {
  switch (f) {
    case Binary::add: return broadcast(on, "add", sizes, Add{}, a, b, y);
    case Binary::subtract: return broadcast(on, "subtract", sizes, Subtract{}, a, b, y);
    case Binary::multiply: return broadcast(on, "multiply", sizes, Multiply{}, a, b, y);
    case Binary::divide: return broadcast(on, "divide", sizes, Divide{}, a, b, y);
  }
}

template <class T>
void affine(Cuda on, Index count, Wide<T> factor, Wide<T> offset, const T* x, T* y) {
  map(on, "affine", count, Affine<Wide<T>>{factor, offset}, Write<T>{y, false}, x);
}

template <class T>
void power(Cuda on, Index count, Wide<T> exponent, const T* x, T* y) {
  map(on, "power", count, Power<Wide<T>>{exponent}, Write<T>{y, false}, x);
}

template <class T>
void where(Cuda on, const Broadcast& s, const bool* condition, const T* a, const T* b, T* y) {
  const Index count = s.elements();
  launch(on, "where", where_kernel<T>, blocks_for(count), dim3(kBlock), 0, count, s, condition, a, b, y);
}

template <class T>
void equal(Cuda on, const Broadcast& s, const T* a, const T* b, bool* y) {
  broadcast(on, "equal", s, Equal{}, a, b, y);
}

void logical_and(Cuda on, const Broadcast& s, const bool* a, const bool* b, bool* y) {
  broadcast(on, "logical_and", s, And{}, a, b, y);
}

template <class T>
void add_in_place(Cuda on, Index count, const T* x, T* sum) {
  map(on, "add_in_place", count, Add{}, Write<T>{sum, false}, static_cast<const T*>(sum), x);
}

template <class T>
Index first_non_finite(Cuda on, Index count, const T* x) {
  unsigned long long first = ~0ULL;
  const Scratch<unsigned long long> found(on, 1);
  cuda::overwrite(on.device, found.data(), &first, sizeof first);
  launch(on, "first_non_finite", first_non_finite_kernel<T>, blocks_for(count), dim3(kBlock), 0, count, x,
         found.data());
  cuda::download(on.device, &first, found.data(), sizeof first);
  return first == ~0ULL ? -1 : static_cast<Index>(first);
}

#define INSTANTIATE(T)                                                              \
  template void unary_forward(Cuda, Unary, Index, const T*, T*);                    \
  template void unary_backward(Cuda, Unary, Index, const T*, const T*, Write<T>);   \
  template void unary_forward_with_derivative(Cuda, Unary, Index, T*, T*);          \
  template void binary(Cuda, Binary, const Broadcast&, const T*, const T*, T*);     \
  template void affine(Cuda, Index, Wide<T>, Wide<T>, const T*, T*);                \
  template void power(Cuda, Index, Wide<T>, const T*, T*);                          \
  template void where(Cuda, const Broadcast&, const bool*, const T*, const T*, T*); \
  template void equal(Cuda, const Broadcast&, const T*, const T*, bool*);           \
  template void add_in_place(Cuda, Index, const T*, T*);                            \
  template Index first_non_finite(Cuda, Index, const T*);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(BFloat16)
#undef INSTANTIATE

}  // namespace tapeformer::kernels
