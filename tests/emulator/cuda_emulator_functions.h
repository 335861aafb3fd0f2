#pragma once

// The part of CUDA's functions that needs no other threads; included by cuda_emulator.h.

/// Only for integers: the order in which floats are added would show in the result.
template <class T>
using EmulatedAtomic = std::enable_if_t<std::is_same<T, int>::value || std::is_same<T, unsigned>::value ||
                                            std::is_same<T, unsigned long long>::value,
                                        T>;
template <class T>
struct EmulatedSame {
  using type = T;  // T follows only from the address
};

template <class T>
EmulatedAtomic<T> atomicAdd(T* address, typename EmulatedSame<T>::type value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <class T>
EmulatedAtomic<T> atomicMin(T* address, typename EmulatedSame<T>::type value) {
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &old, value < old ? value : old, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline float __uint_as_float(unsigned x) { return tapeformer::emulator::bit_cast<float>(x); }

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

// Rounded on its own; through memory, so that the host's compiler fuses nothing either.
inline float __fmul_rn(float a, float b) {
  volatile float product = a * b;
  return product;
}
inline double __dmul_rn(double a, double b) {
  volatile double product = a * b;
  return product;
}
