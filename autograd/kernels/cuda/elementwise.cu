#include <tapeformer/autograd/kernels/cuda/map.h>
#include <tapeformer/autograd/kernels/cuda/scratch.h>
#include <tapeformer/autograd/kernels/cuda/unary_bf16.h>
#include <tapeformer/autograd/kernels/elementwise.h>

namespace tapeformer::kernels {
namespace {

template <class F, class T>
struct Value {
  __device__ T operator()(T x) const { return F::value(x); }
};
template <class F, class T>
struct Gradient {
  __device__ T operator()(T saved, T dy) const { return F::gradient(saved, dy); }
};

struct Choose {
  template <class T>
  __device__ T operator()(T a, T b, bool first) const {
    return first ? a : b;
  }
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
template <class T>
struct Clamp {
  T low, high;
  __device__ T operator()(T x) const { return x < low ? low : x > high ? high : x; }
};

/// The offsets of the operands of the i-th result.
__device__ Broadcast::Offsets offsets_at(const Broadcast& s, Index i) {
  Broadcast::Offsets at;
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

/// Whether the operands are contiguous along the last axis; otherwise they repeat.
struct Runs {
  bool a, b, c;
};

/// N neighbours, or one number N times.
template <int N, class T>
__device__ Pack<T, N> load_or_repeat(const T* from, bool runs) {
  if (runs) return load_pack<N>(from);
  Pack<T, N> repeated;
#pragma unroll
  for (int k = 0; k < N; ++k) repeated.of[k] = *from;
  return repeated;
}

/// `c` is nullptr for functions of two arguments.
template <class F, class X, class Y>
__global__ void broadcast_kernel(Index count, bool packed, Broadcast s, Runs runs, F f, const X* a,
                                 const X* b, const bool* c, Y* y) {
  for_each_pack_of_grid<kCommonPack<X, Y>>(count, packed, [&](auto size, Index i) {
    constexpr int N = decltype(size)::value;
    const Broadcast::Offsets at = offsets_at(s, i);
    const Pack<X, N> of_a = load_or_repeat<N>(a + at.a, runs.a), of_b = load_or_repeat<N>(b + at.b, runs.b);
    Pack<Y, N> result;
    if constexpr (std::is_same<F, Choose>::value) {
      const Pack<bool, N> of_c = load_or_repeat<N>(c + at.c, runs.c);
#pragma unroll
      for (int k = 0; k < N; ++k) result.of[k] = f(of_a.of[k], of_b.of[k], of_c.of[k]);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k)
        result.of[k] = static_cast<Y>(f(static_cast<Wide<X>>(of_a.of[k]), static_cast<Wide<X>>(of_b.of[k])));
    }
    store_pack(y + i, result);
  });
}

/// True where every pack of N results comes from packs, or repeats, of an operand with these strides.
bool comes_in_packs(int N, const Broadcast& s, const Index* strides, const void* from) {
  if (strides[s.axes - 1] == 0) return true;
  for (int axis = 0; axis < s.axes - 1; ++axis)
    if (strides[axis] % N != 0) return false;
  return are_packed(from);
}

template <class F, class X, class Y>
void broadcast(Cuda on, const char* name, const Broadcast& s, F f, const X* a, const X* b, const bool* c,
               Y* y) {
  constexpr int N = kCommonPack<X, Y>;
  const Index count = s.elements();
  const int last = s.axes - 1;
  if constexpr (!std::is_same<F, Choose>::value) {
    if (last == 0 && s.strides_a[0] == 1 && s.strides_b[0] == 1)
      return map(on, name, count, f, Write<Y>{y, false}, a, b);
  }
  const bool packed = (last == 0 || s.sizes[last] % N == 0) && are_packed(y) &&
                      comes_in_packs(N, s, s.strides_a, a) && comes_in_packs(N, s, s.strides_b, b) &&
                      (c == nullptr || comes_in_packs(N, s, s.strides_c, c));
  const Runs runs{s.strides_a[last] != 0, s.strides_b[last] != 0, s.strides_c[last] != 0};
  launch(on, name, broadcast_kernel<F, X, Y>, blocks_for_packs<N>(count, packed), count, packed, s, runs, f,
         a, b, c, y);
}

/// Lowers `first` to the position of the first NaN, or unless `nan_only` infinity.
template <class T>
__global__ void first_non_finite_kernel(Index count, bool nan_only, const T* x, unsigned long long* first) {
  for_each_index(count, [&](Index i) {
    const Wide<T> value = static_cast<Wide<T>>(x[i]);
    if (nan_only ? value != value : !isfinite(value)) atomicMin(first, static_cast<unsigned long long>(i));
  });
}

}  // namespace

template <class T>
void unary_forward(Cuda on, Unary f, Index count, const T* x, T* y) {
  with_function(f, [&](auto function) {
    map(on, "unary_forward", count, Value<FormOf<decltype(function), T>, Wide<T>>{}, Write<T>{y, false}, x);
  });
}

template <class T>
void unary_backward(Cuda on, Unary f, Index count, const T* saved, const T* dy, Write<T> dx) {
  with_function(f, [&](auto function) {
    map(on, "unary_backward", count, Gradient<FormOf<decltype(function), T>, Wide<T>>{}, dx, saved, dy);
  });
}

template <class T>
void binary(Cuda on, Binary f, const Broadcast& sizes, const T* a, const T* b, T* y) {
  with_operator(f, [&](auto op, const char* name) { broadcast(on, name, sizes, op, a, b, nullptr, y); });
}

template <class T>
void affine(Cuda on, Index count, double factor, double offset, const T* x, T* y) {
  using W = Wide<T>;
  map(on, "affine", count, Affine<W>{static_cast<W>(factor), static_cast<W>(offset)}, Write<T>{y, false}, x);
}

template <class T>
void power(Cuda on, Index count, double exponent, const T* x, T* y) {
  map(on, "power", count, Power<Wide<T>>{static_cast<Wide<T>>(exponent)}, Write<T>{y, false}, x);
}

template <class T>
void clamp(Cuda on, Index count, double low, double high, const T* x, T* y) {
  using W = Wide<T>;
  map(on, "clamp", count, Clamp<W>{static_cast<W>(low), static_cast<W>(high)}, Write<T>{y, false}, x);
}

template <class T>
void where(Cuda on, const Broadcast& s, const bool* condition, const T* a, const T* b, T* y) {
  broadcast(on, "where", s, Choose{}, a, b, condition, y);
}

template <class T>
void equal(Cuda on, const Broadcast& s, const T* a, const T* b, bool* y) {
  broadcast(on, "equal", s, std::equal_to<>{}, a, b, nullptr, y);
}

void logical_and(Cuda on, const Broadcast& s, const bool* a, const bool* b, bool* y) {
  broadcast(on, "logical_and", s, std::logical_and<>{}, a, b, nullptr, y);
}

template <class T>
void add_in_place(Cuda on, Index count, const T* x, T* sum) {
  map(on, "add_in_place", count, std::plus<>{}, Write<T>{sum, false}, static_cast<const T*>(sum), x);
}

template <class T>
void first_non_finite(Cuda on, Index count, const T* x, bool nan_only, Index* first) {
  unsigned long long least = ~0ULL;
  const Scratch<unsigned long long> found(on, 1);
  cuda::overwrite(on.device, found.data(), &least, sizeof least);
  launch(on, "first_non_finite", first_non_finite_kernel<T>, blocks_for(count), count, nan_only, x,
         found.data());
  cuda::download(on.device, &least, found.data(), sizeof least);
  *first = least == ~0ULL ? -1 : static_cast<Index>(least);
}

TAPEFORMER_CUDA_KERNEL(unary_forward);
TAPEFORMER_CUDA_KERNEL(unary_backward);
TAPEFORMER_CUDA_KERNEL(binary);
TAPEFORMER_CUDA_KERNEL(affine);
TAPEFORMER_CUDA_KERNEL(power);
TAPEFORMER_CUDA_KERNEL(clamp);
TAPEFORMER_CUDA_KERNEL(where);
TAPEFORMER_CUDA_KERNEL(equal);
TAPEFORMER_CUDA_KERNEL(add_in_place);
TAPEFORMER_CUDA_KERNEL(first_non_finite);

}  // namespace tapeformer::kernels
