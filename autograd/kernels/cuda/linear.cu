#include <tapeformer/autograd/kernels/cuda/columns.h>
#include <tapeformer/autograd/kernels/cuda/cublaslt.h>
#include <tapeformer/autograd/kernels/cuda/unary_bf16.h>

namespace tapeformer::kernels {
namespace {

using cuda::Epilogue;

/// y = f(z + bias), and z + bias to `before` unless that is nullptr; rows begin `lead` values apart.
/// n is a multiple of kPack.
template <int kPack, class F, class T>
__global__ void bias_activation_kernel(Index rows, Index n, Index lead, F f, const T* bias, const T* z,
                                       T* before, T* y) {
  const Index packs = n / kPack;
  for_each_index(rows * packs, [&](Index i) {
    const Division place = divide(i, packs);
    const Index column = place.remainder * kPack, at = place.quotient * lead + column;
    Pack<Wide<T>, kPack> x = widened(load_pack<kPack>(z + at)), result, offset{};
    if (bias != nullptr) offset = widened(load_pack<kPack>(bias + column));
#pragma unroll
    for (int j = 0; j < kPack; ++j) {
      x.of[j] += offset.of[j];
      result.of[j] = f(x.of[j]);
    }
    if (before != nullptr) store_pack(before + at, narrowed<T>(x));
    store_pack(y + at, narrowed<T>(result));  // last: y may be z
  });
}

template <class F, class T>
struct Activation {
  __device__ Wide<T> operator()(Wide<T> x) const { return FormOf<F, T>::value(x); }
};
struct Identity {
  template <class W>
  __device__ W operator()(W x) const {
    return x;
  }
};

template <class F, class T>
void bias_activation(Cuda on, const Gemm& s, F f, const T* bias, const T* z, T* before, T* y) {
  constexpr int kPack = kPackSize<T>;
  if (bias == nullptr && before == nullptr && s.ldc == s.n)
    return map(on, "bias_activation", s.m * s.n, f, Write<T>{y, false}, z);
  const bool packed = are_packed(bias, z, before, y) && s.n % kPack == 0 && s.ldc % kPack == 0;
  with_packs<kPack>(packed, [&](auto size) {
    launch(on, "bias_activation", bias_activation_kernel<decltype(size)::value, F, T>,
           blocks_for(s.m * s.n / size), s.m, s.n, s.ldc, f, bias, z, before, y);
  });
}

/// dz = dy f'(z), which is stored, as a source of columns, whose sums are of dz before it is rounded.
template <int N, class F>
struct ActivationGradient {
  static constexpr int kAtOnce = 2;
  struct Loaded {
    Pack<BFloat16, N> z, dy;
  };
  const BFloat16 *z, *dy;
  BFloat16* dz;
  __device__ Loaded load(Index at) const { return {load_pack<N>(z + at), load_pack<N>(dy + at)}; }
  __device__ Pack<float, N> use(Index at, const Loaded& loaded) const {
    const Pack<float, N> inputs = widened(loaded.z);
    Pack<float, N> result = widened(loaded.dy);
#pragma unroll
    for (int j = 0; j < N; ++j) result.of[j] *= Bf16Form<F>::at(inputs.of[j]).derivative;
    store_pack(dz + at, narrowed<BFloat16>(result));
    return result;
  }
};

template <class T, class Use>
void with_activation(std::optional<Unary> f, Use&& use) {
  if (!f) return use(Identity{});
  with_function(*f, [&](auto function) { use(Activation<decltype(function), T>{}); });
}

/// True if the library did all of it.
template <class T, class C>
bool multiplied(Cuda on, const Gemm& s, const T* a, const T* b, const Write<C>& c, Epilogue epilogue,
                const C* bias, C* before = nullptr) {
  if (s.m == 0 || s.n == 0 || s.k == 0) return false;
  cuda::StridedProducts products = cuda::described<T>(s, c);
  products.epilogue = epilogue;
  return cuda::multiply(on.device, products, a, b, c.to, const_cast<C*>(bias), before);
}

}  // namespace

template <class T>
void linear_forward(Cuda on, const Gemm& s, const T* x, const T* weight, const T* bias,
                    std::optional<Unary> f, T* saved, T* y) {
  const Write<T> into_y{y, false};
  if (bias != nullptr && f == Unary::relu && multiplied(on, s, x, weight, into_y, Epilogue::relu_bias, bias))
    return;
  // The library's tanh is precise enough for bf16.
  if (bias != nullptr && f == Unary::gelu_tanh && dtype_of<T>() == DType::bf16 &&
      multiplied(on, s, x, weight, into_y, Epilogue::gelu_tanh_bias, bias, saved))
    return;
  T* const z = saved != nullptr ? saved : y;
  const Write<T> into_z{z, false};
  // If an activation follows, its kernel adds the bias, unless z itself is saved.
  const bool has_bias = bias != nullptr && (!f || saved != nullptr) &&
                        multiplied(on, s, x, weight, into_z, Epilogue::bias, bias);
  if (!has_bias) gemm(on, s, x, weight, into_z);
  const T* const missing = has_bias ? nullptr : bias;
  if (!f && missing == nullptr) return;
  T* const before = missing != nullptr ? saved : nullptr;
  with_activation<T>(f, [&](auto function) { bias_activation(on, s, function, missing, z, before, y); });
}

template <class T>
void linear_activation_backward(Cuda on, Unary f, Index rows, Index n, const T* saved, const T* dy, T* dz,
                                Write<Wide<T>> dbias) {
  if constexpr (sizeof(T) == 2) {
    bool is_queued = false;
    with_function(f, [&](auto function) {
      using F = decltype(function);
      if constexpr (Bf16Form<F>::is_cheap) {
        constexpr int kPack = kPackSize<T>;
        with_packs<kPack>(n % kPack == 0 && are_packed(saved, dy, dz), [&](auto size) {
          constexpr int N = decltype(size)::value;
          reduce_columns<N>(on, "activation_gradient", 1, rows, n, n, ActivationGradient<N, F>{saved, dy, dz},
                            dbias);
        });
        is_queued = true;
      }
    });
    if (is_queued) return;
  }
  unary_backward(on, f, rows * n, saved, dy, Write<T>{dz, false});
  if (dbias) sum_rows(on, rows, n, n, dz, dbias);
}

TAPEFORMER_CUDA_KERNEL(linear_forward);
TAPEFORMER_CUDA_KERNEL(linear_activation_backward);

}  // namespace tapeformer::kernels
