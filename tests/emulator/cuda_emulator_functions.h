#pragma once

// The part of CUDA's functions that needs no other threads; included by cuda_emulator.h.

/// Integers alone: the order in which floats are added would show in the result.
template <class T>
using EmulatedAtomic = std::enable_if_t<std::is_same<T, int>::value || std::is_same<T, unsigned>::value ||
                                            std::is_same<T, unsigned long long>::value,
                                        T>;
template <class T>
struct EmulatedSame {
  using type = T;  // T follows from the address alone
};

template <class T>
EmulatedAtomic<T> atomicAdd(T* address, typename EmulatedSame<T>::type value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <class T>
EmulatedAtomic<T> atomicExch(T* address, typename EmulatedSame<T>::type value) {
  return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <class T>
EmulatedAtomic<T> atomicCAS(T* address, typename EmulatedSame<T>::type expected,
                            typename EmulatedSame<T>::type value) {
  __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
template <class T>
EmulatedAtomic<T> atomicMin(T* address, typename EmulatedSame<T>::type value) {
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &old, value < old ? value : old, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T>
EmulatedAtomic<T> atomicMax(T* address, typename EmulatedSame<T>::type value) {
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &old, old < value ? value : old, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

// One host thread runs the whole launch: its own accesses are in order.
inline void __threadfence() {}
inline void __threadfence_block() {}

template <class T>
T __ldg(const T* address) {
  return *address;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __clzll(long long bits) {
  return bits == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(bits));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}

inline int __float_as_int(float x) { return tapeformer::emulator::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return tapeformer::emulator::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return tapeformer::emulator::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return tapeformer::emulator::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return tapeformer::emulator::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return tapeformer::emulator::bit_cast<double>(x); }

/// As CUDA's: operands of two types meet in the type of their sum; of a number and NaN the number.
template <class A, class B>
std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point<T>::value)
    return fmin(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point<T>::value)
    return fmax(static_cast<T>(a), static_cast<T>(b));
  else
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
// Rounded alone; through memory, so that the host's compiler fuses nothing either.
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;
  return product;
}
inline double __dmul_rn(double a, double b) {
  volatile double product = a * b;
  return product;
}
inline float __fadd_rn(float a, float b) {
  volatile float first = a, second = b;
  return first + second;
}
inline double __dadd_rn(double a, double b) {
  volatile double first = a, second = b;
  return first + second;
}
