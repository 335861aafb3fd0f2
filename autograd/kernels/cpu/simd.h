#pragma once

#include <tapeformer/autograd/kernels/write.h>

#include <xsimd/xsimd.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__aarch64__)
// On Arm xsimd approximates quotients and roots of f32 by Newton's method: they are off by some last bits,
// the root of infinity is NaN, and the quotient by a subnormal number has the wrong sign.
template <>
inline xsimd::batch<float>& xsimd::batch<float>::operator/=(const xsimd::batch<float>& x) noexcept {
  return *this = vdivq_f32(*this, x);
}
template <>
inline xsimd::batch<float> xsimd::sqrt(const xsimd::batch<float>& x) noexcept {
  return vsqrtq_f32(x);
}
#endif

namespace tapeformer::kernels {

template <class T>
using Lanes = xsimd::batch<T>;
template <class T>
constexpr Index kLanes = static_cast<Index>(Lanes<T>::size);

template <class T>
T sum_lanes(const Lanes<T>& x) {
#if XSIMD_VERSION_MAJOR < 9
  return xsimd::hadd(x);
#else
  return xsimd::reduce_add(x);
#endif
}

/// The largest of all lanes.
template <class T>
T max_lanes(const Lanes<T>& x) {
  T values[kLanes<T>];
  x.store_unaligned(values);
  T largest = values[0];
  for (Index k = 1; k < kLanes<T>; ++k) largest = values[k] > largest ? values[k] : largest;
  return largest;
}

/// exp(x), in f32 0 for results below the smallest normal number, with half of xsimd's instructions: 2^n is
/// made from the last bits of n plus a number that has no places for fractions. The polynomial was fitted to
/// the relative error, 3e-9 for |x| up to ln 2 / 2; with rounding it is at most 0.9 units in the last place.
inline Lanes<double> exp_lanes(const Lanes<double>& x) { return xsimd::exp(x); }
inline Lanes<float> exp_lanes(const Lanes<float>& x) {
  using Bits = std::int32_t __attribute__((vector_size(sizeof(Lanes<float>))));
  const Lanes<float> least(-87.3365448F), most(89), no_fractions(0x1.8p23F + 127);
  const Lanes<float> y = xsimd::min(most, x);  // in this order NaN stays NaN
  const Lanes<float> sum = xsimd::fma(y, Lanes<float>(1.44269504F), no_fractions), n = sum - no_fractions;
  const Lanes<float> high = xsimd::fma(n, Lanes<float>(-0.693359375F), y),
                     r = xsimd::fma(n, Lanes<float>(2.12194440e-4F), high);
  Lanes<float> p(0.00138145406F);
  for (const float factor : {0.00836874545F, 0.041668389F, 0.166665211F, 0.49999994F, 1.F, 1.F})
    p = xsimd::fma(p, r, Lanes<float>(factor));
  Bits bits;
  std::memcpy(&bits, &sum, sizeof bits);
  bits <<= 23;
  Lanes<float> power;
  std::memcpy(&power, &bits, sizeof bits);
  return xsimd::select(x < least, Lanes<float>(0.F), p * power);
}

/// A vector of `lanes` values from `from` on; the rest is `fill`.
template <class T>
Lanes<T> load_part(const T* from, Index lanes, T fill = T(0)) {
  T values[kLanes<T>];
  std::fill(values, values + kLanes<T>, fill);
  std::copy(from, from + lanes, values);
  return Lanes<T>::load_unaligned(values);
}

template <class T>
void store_part(const Lanes<T>& x, T* to, Index lanes) {
  T values[kLanes<T>];
  x.store_unaligned(values);
  std::copy(values, values + lanes, to);
}

#if defined(__AVX512F__)
inline float max_lanes(const Lanes<float>& x) { return _mm512_reduce_max_ps(x); }

// Masked instructions: going through memory would triple the cost of the end of a row of a dozen values.
inline Lanes<float> load_part(const float* from, Index lanes, float fill = 0) {
  return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), static_cast<__mmask16>((1U << lanes) - 1), from);
}
inline Lanes<double> load_part(const double* from, Index lanes, double fill = 0) {
  return _mm512_mask_loadu_pd(_mm512_set1_pd(fill), static_cast<__mmask8>((1U << lanes) - 1), from);
}
inline void store_part(const Lanes<float>& x, float* to, Index lanes) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << lanes) - 1), x);
}
inline void store_part(const Lanes<double>& x, double* to, Index lanes) {
  _mm512_mask_storeu_pd(to, static_cast<__mmask8>((1U << lanes) - 1), x);
}
#elif defined(__AVX2__)
// A masked store would be no faster.
inline Lanes<float> load_part(const float* from, Index lanes, float fill = 0) {
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(lanes)),
                                          _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  return _mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(from, mask), _mm256_castsi256_ps(mask));
}
#endif

/// y[i] = f(x[i]...), whole vectors at a time. The tail runs through the same code, so a value does not
/// depend on where a range was cut.
template <class T, class F, class... X>
void map_simd(Index from, Index to, T* y, const F& f, const X*... x) {
  Index i = from;
  for (; i + kLanes<T> <= to; i += kLanes<T>) f(Lanes<T>::load_unaligned(x + i)...).store_unaligned(y + i);
  if (i < to) store_part(f(load_part(x + i, to - i, T(1))...), y + i, to - i);
}

/// As map_simd, but assigns or adds as `y` says.
template <class T, class F, class... X>
void write_simd(Index from, Index to, Write<T> y, const F& f, const X*... x) {
  if (!y.add) return map_simd(from, to, y.to, f, x...);
  map_simd(
      from, to, y.to, [&](const auto& sum, const auto&... v) { return sum + f(v...); },
      static_cast<const T*>(y.to), x...);
}

/// y[i] = scale x[i] over [0, count), assigned or added as `y` says.
template <class T>
void write_scaled(Index count, T scale, const T* x, Write<T> y) {
  const Lanes<T> factor(scale);
  write_simd(
      0, count, y, [&](const Lanes<T>& v) { return factor * v; }, x);
}

/// The sum of f(x[i]...) over [0, count), in several independent lanes; long ranges are summed by halves, so
/// that the error is at most u (b + log2(count / b)) sum |f| with b = 1024 / (4 lanes).
/// Source:  Higham 1993, The accuracy of floating point summation, section 3
template <class T, class F, class... X>
T sum_simd(Index count, const F& f, const X*... x) {
  constexpr Index kStep = 4 * kLanes<T>, kBlock = 1024;
  if (count > kBlock) {
    const Index half = (count / 2 + kBlock - 1) / kBlock * kBlock;
    return sum_simd<T>(half, f, x...) + sum_simd<T>(count - half, f, (x + half)...);
  }
  Lanes<T> sums[4] = {Lanes<T>(T(0)), Lanes<T>(T(0)), Lanes<T>(T(0)), Lanes<T>(T(0))};
  Index i = 0;
  for (; i + kStep <= count; i += kStep) {
    for (Index k = 0; k < 4; ++k) sums[k] += f(Lanes<T>::load_unaligned(x + i + k * kLanes<T>)...);
  }
  for (; i + kLanes<T> <= count; i += kLanes<T>) sums[0] += f(Lanes<T>::load_unaligned(x + i)...);
  if (i < count) {
    T tail[kLanes<T>];
    f(load_part(x + i, count - i, T(0))...).store_unaligned(tail);
    sums[1] += load_part(tail, count - i, T(0));
  }
  return sum_lanes<T>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// The sum of x[i] over [0, count).
template <class T>
T total_simd(Index count, const T* x) {
  return sum_simd<T>(
      count, [](const Lanes<T>& v) { return v; }, x);
}

/// The sum of x[i] y[i] over [0, count).
template <class T>
T dot_simd(Index count, const T* x, const T* y) {
  return sum_simd<T>(
      count, [](const Lanes<T>& a, const Lanes<T>& b) { return a * b; }, x, y);
}

/// The largest of x; `count` is at least 1.
template <class T>
T max_simd(Index count, const T* x) {
  Lanes<T> lanes(x[0]);
  Index i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) lanes = xsimd::max(lanes, Lanes<T>::load_unaligned(x + i));
  if (i < count) lanes = xsimd::max(lanes, load_part(x + i, count - i, x[0]));
  return max_lanes(lanes);
}

}  // namespace tapeformer::kernels
