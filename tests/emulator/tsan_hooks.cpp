// The functions that code compiled with -fsanitize=thread calls, in place of the sanitizer's own library:
// they tell the emulator of the accesses of kernels, and ignore those of other code.

#include <tapeformer/tests/emulator/machine.h>

#include <cstring>

// The names differ only by the size, and only a macro can spell them so.
#define TAPEFORMER_PLAIN(KIND, SIZE)                                 \
  void __tsan_##KIND##read##SIZE(void* address) {                    \
    note(address, SIZE, Access::read, __builtin_return_address(0));  \
  }                                                                  \
  void __tsan_##KIND##write##SIZE(void* address) {                   \
    note(address, SIZE, Access::write, __builtin_return_address(0)); \
  }

#define TAPEFORMER_COMPARE(BITS, NAME)                                                            \
  bool __tsan_atomic##BITS##_compare_exchange_##NAME(volatile void* address, void* expected,      \
                                                     std::uint##BITS##_t value, int, int) {       \
    note(address, BITS / 8, Access::atomic, __builtin_return_address(0));                         \
    return __atomic_compare_exchange_n(static_cast<volatile std::uint##BITS##_t*>(address),       \
                                       static_cast<std::uint##BITS##_t*>(expected), value, false, \
                                       __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                       \
  }

#define TAPEFORMER_ATOMIC(BITS)                                                                              \
  std::uint##BITS##_t __tsan_atomic##BITS##_load(const volatile void* address, int) {                        \
    note(address, BITS / 8, Access::atomic, __builtin_return_address(0));                                    \
    return __atomic_load_n(static_cast<const volatile std::uint##BITS##_t*>(address), __ATOMIC_SEQ_CST);     \
  }                                                                                                          \
  void __tsan_atomic##BITS##_store(volatile void* address, std::uint##BITS##_t value, int) {                 \
    note(address, BITS / 8, Access::atomic, __builtin_return_address(0));                                    \
    __atomic_store_n(static_cast<volatile std::uint##BITS##_t*>(address), value, __ATOMIC_SEQ_CST);          \
  }                                                                                                          \
  std::uint##BITS##_t __tsan_atomic##BITS##_exchange(volatile void* address, std::uint##BITS##_t value,      \
                                                     int) {                                                  \
    note(address, BITS / 8, Access::atomic, __builtin_return_address(0));                                    \
    return __atomic_exchange_n(static_cast<volatile std::uint##BITS##_t*>(address), value,                   \
                               __ATOMIC_SEQ_CST);                                                            \
  }                                                                                                          \
  std::uint##BITS##_t __tsan_atomic##BITS##_fetch_add(volatile void* address, std::uint##BITS##_t value,     \
                                                      int) {                                                 \
    note(address, BITS / 8, Access::atomic, __builtin_return_address(0));                                    \
    return __atomic_fetch_add(static_cast<volatile std::uint##BITS##_t*>(address), value, __ATOMIC_SEQ_CST); \
  }                                                                                                          \
  TAPEFORMER_COMPARE(BITS, strong)                                                                           \
  TAPEFORMER_COMPARE(BITS, weak)                                                                             \
  /* clang's, which gives back what was there */                                                             \
  std::uint##BITS##_t __tsan_atomic##BITS##_compare_exchange_val(                                            \
      volatile void* address, std::uint##BITS##_t expected, std::uint##BITS##_t value, int, int) {           \
    note(address, BITS / 8, Access::atomic, __builtin_return_address(0));                                    \
    __atomic_compare_exchange_n(static_cast<volatile std::uint##BITS##_t*>(address), &expected, value,       \
                                false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);                                  \
    return expected;                                                                                         \
  }

namespace tapeformer::emulator {
namespace {

inline void note(const volatile void* address, std::size_t bytes, Access kind, const void* code) {
  if (watching) touched(const_cast<const void*>(address), bytes, kind, code);
}

}  // namespace

extern "C" {

void __tsan_init() { instrumented = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

void __tsan_read_range(void* address, std::size_t bytes) {
  note(address, bytes, Access::read, __builtin_return_address(0));
}
void __tsan_write_range(void* address, std::size_t bytes) {
  note(address, bytes, Access::write, __builtin_return_address(0));
}

// The memcpy family as kernels call it, see cuda_emulator.h; copies of structures come here too.
void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  note(from, bytes, Access::read, __builtin_return_address(0));
  note(to, bytes, Access::write, __builtin_return_address(0));
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  note(from, bytes, Access::read, __builtin_return_address(0));
  note(to, bytes, Access::write, __builtin_return_address(0));
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  note(to, bytes, Access::write, __builtin_return_address(0));
  return std::memset(to, value, bytes);
}

TAPEFORMER_PLAIN(, 1)
TAPEFORMER_PLAIN(, 2)
TAPEFORMER_PLAIN(, 4)
TAPEFORMER_PLAIN(, 8)
TAPEFORMER_PLAIN(, 16)
TAPEFORMER_PLAIN(unaligned_, 2)
TAPEFORMER_PLAIN(unaligned_, 4)
TAPEFORMER_PLAIN(unaligned_, 8)
TAPEFORMER_PLAIN(unaligned_, 16)
TAPEFORMER_ATOMIC(8)
TAPEFORMER_ATOMIC(16)
TAPEFORMER_ATOMIC(32)
TAPEFORMER_ATOMIC(64)

}  // extern "C"

}  // namespace tapeformer::emulator
